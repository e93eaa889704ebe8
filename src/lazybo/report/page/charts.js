/* Small pictures in SVG. Colours come from the style sheet, so that they follow light, dark and print. */

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/* ------------------------------------------------------------------ numbers */

/* A number as text, with a real minus. */
function format(value, digits = 4) {
  return plainNumber(value, digits).replace(/-/g, "−");
}

function plainNumber(value, digits) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  const text = size >= 10 ** digits ? String(Math.round(value)) : value.toPrecision(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/* Two ends of an interval, with as few digits as tell them apart. */
function interval(low, high) {
  const digits = [4, 6, 9].find((each) => format(low, each) !== format(high, each)) || 4;
  return `95 %: ${format(low, digits)} to ${format(high, digits)}`;
}

function shortened(words, length) {
  return words.length > length ? `${words.slice(0, length - 1)}…` : words;
}

function percent(share) {
  if (share === null) return "–";
  return share > 0 && share < 0.01 ? "< 1 %" : share < 1 && share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`;
}

/* About this many round numbers between two ends. */
function niceTicks(low, high, count, whole = false) {
  const raw = (high / 2 - low / 2) * 2 / Math.max(count, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= raw * 0.7);
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return ticks.map((tick) => Number(tick.toPrecision(12)));
}

/* Round numbers for a logarithmic axis: powers of ten far apart, or 1, 2, 5 within them. */
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = first; power <= last; power++) {
      for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
    }
    const inside = ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
    if (inside.length <= count || digits.length === 1) {
      const every = Math.ceil(inside.length / count);
      return inside.length > 1 ? inside.filter((_, i) => i % every === 0) : [low, high];
    }
  }
  return [low, high];
}

/* The range of most values, by default of the middle half and as much around it, and of those that are always shown. */
function limitsOf(values, always = [], [from, to] = [0.25, 0.75]) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  const pinned = always.filter(Number.isFinite);
  if (!sorted.length && !pinned.length) return [0, 1];
  const all = sorted.length ? sorted : pinned;
  const at = (share) => all[Math.round(share * (all.length - 1))];
  const reach = 3 * (at(to) - at(from)) || Math.abs(at(1)) || 1;
  const low = Math.min(Math.max(at(0), at(from) - reach), ...pinned);
  const high = Math.max(Math.min(at(1), at(to) + reach), ...pinned);
  const margin = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

/* ------------------------------------------------------------------- frames */

/* A plot area with axes in an element: `x` and `y` are {limits, title, ticks, label, whole}. */
function frame(parent, { width, height, x, y, right = 12 }) {
  const label = (axis) => axis.label || ((tick) => format(tick));
  const yTicks = y.ticks || niceTicks(...y.limits, Math.max(2, Math.round(height / 55)));
  const longest = Math.max(0, ...yTicks.map((tick) => label(y)(tick).length));
  const box = { left: 14 + 6.6 * longest, top: y.title ? 26 : 10, bottom: x.title ? 42 : 24 };
  const inner = { width: Math.max(width - box.left - right, 10), height: Math.max(height - box.top - box.bottom, 10) };
  const X = scale(x.limits, [box.left, box.left + inner.width]);
  const Y = scale(y.limits, [box.top + inner.height, box.top]);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "plot" });
  const id = `clip${++frame.count}`;
  const clip = { x: box.left - 4, y: box.top - 4, width: inner.width + 8, height: inner.height + 8 };
  svg.append(draw("clipPath", { id }, draw("rect", clip)));
  for (const tick of yTicks) {
    svg.append(draw("line", { class: "grid", x1: box.left, x2: width - right, y1: Y(tick), y2: Y(tick) }));
    svg.append(text(box.left - 7, Y(tick) + 4, label(y)(tick), "tick end"));
  }
  const room = Math.floor((width - 4) / 6.6);
  if (y.title) svg.append(text(2, 13, shortened(y.title, room), "title"));
  const bottom = box.top + inner.height;
  svg.append(draw("line", { class: "axis", x1: box.left, x2: width - right, y1: bottom, y2: bottom }));
  const xTicks = x.ticks || niceTicks(...x.limits, inner.width / 80, x.whole);
  drawTicks(svg, xTicks, label(x), X, bottom, width);
  if (x.title) svg.append(text(width - right, height - 6, shortened(x.title, room), "title end"));
  const plot = draw("g", { "clip-path": `url(#${id})` });
  svg.append(plot);
  parent.append(svg);
  return { svg, plot, X, Y, box, inner, bottom };
}
frame.count = 0;

/* Labels below the axis: those that would run into their neighbour are left out, the ends stay inside. */
function drawTicks(svg, ticks, label, X, bottom, width) {
  let free = -Infinity;
  for (const tick of ticks) {
    const words = label(tick), half = 3.3 * words.length;
    const at = Math.min(Math.max(X(tick), half), width - half - 1);
    svg.append(draw("line", { class: "axis", x1: X(tick), x2: X(tick), y1: bottom, y2: bottom + 4 }));
    if (at - half < free) continue;
    svg.append(text(at, bottom + 17, words, "tick middle"));
    free = at + half + 8;
  }
}

/* A linear map from numbers to pixels. Halves, since the difference of two doubles may overflow. */
function scale([low, high], [from, to]) {
  const origin = low / 2, extent = high / 2 - origin || 1;
  const at = (value) => from + Math.min(Math.max((value / 2 - origin) / extent, -4), 5) * (to - from);
  at.invert = (pixel) => 2 * (origin + ((pixel - from) / (to - from)) * extent);
  return at;
}

function text(x, y, words, kind) {
  return draw("text", { x, y, class: kind }, words);
}

/* A path through points; a new stroke begins after a gap (null). */
function line(points, kind) {
  let d = "", pen = "M";
  for (const point of points) {
    if (!point || !Number.isFinite(point[0] + point[1])) pen = "M";
    else {
      d += `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      pen = "L";
    }
  }
  return draw("path", { d, class: kind });
}

/* Many dots as one path: strokes of length 0 with round ends. */
function dots(points, kind) {
  const d = points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
  return draw("path", { d, class: `dots ${kind}` });
}

function crosses(points, kind, r = 3) {
  const d = points.map(([x, y]) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`).join("");
  return draw("path", { d, class: kind });
}

function band(upper, lower, kind) {
  const points = [...upper, ...lower.slice().reverse()];
  return draw("path", { d: `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z`, class: kind });
}

function legend(parent, items) {
  const list = el("ul", { class: "legend" });
  for (const [kind, words] of items) list.append(el("li", {}, el("i", { class: `key ${kind}` }), words));
  parent.append(list);
}

/* ------------------------------------------------------------------- pointing */

const tip = el("div", { class: "tip", hidden: "" });

/* Show what is nearest to the pointer: `points` are {x, y, lines}; `pick` is called with the one that was clicked. */
function pointing(svg, points, pick = null) {
  const mark = draw("circle", { r: 6, class: "mark", visibility: "hidden" });
  svg.append(mark);
  const nearest = (event) => {
    const box = svg.getBoundingClientRect(), ratio = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * ratio, y = (event.clientY - box.top) * ratio;
    let best = null, least = 30 * 30;
    for (const point of points) {
      const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  };
  svg.addEventListener("pointermove", (event) => {
    const point = nearest(event);
    mark.setAttribute("visibility", point ? "visible" : "hidden");
    tip.hidden = !point;
    if (!point) return;
    fill(mark, { cx: point.x, cy: point.y }, []);
    showTip(event, point.lines());
  });
  svg.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    tip.hidden = true;
  });
  if (pick) {
    svg.classList.add("clickable");
    svg.addEventListener("click", (event) => {
      const point = nearest(event);
      if (point) pick(point);
    });
  }
}

function showTip(event, lines) {
  tip.replaceChildren(...lines.map((words, i) => el(i ? "div" : "strong", {}, words)));
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const y = below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 12 : below;
  tip.style.left = `${Math.max(x, 4)}px`;
  tip.style.top = `${Math.max(y, 4)}px`;
}

/* Draw into an element now, and again whenever its width changes. */
function responsive(parent, render) {
  let drawn = 0;
  const again = () => {
    const width = Math.floor(parent.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    parent.replaceChildren();
    render(parent, width);
  };
  again();
  new ResizeObserver(again).observe(parent);
}

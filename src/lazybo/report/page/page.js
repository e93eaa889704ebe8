/* Draws the sections of the page. A section that the study does not have is not in the page either. */

const data = JSON.parse(document.getElementById("data").textContent);
const model = data.model && new Model(data.model);
const { trials } = data;
document.body.append(tip);

const section = (id) => document.getElementById(id);
let explorer = null;

/* Load a trial into the explorer, and go there. */
function explore(number) {
  if (!explorer) return;
  explorer.load(number);
  section("model").scrollIntoView({ behavior: "smooth" });
}

/* What a tooltip says of a completed trial. */
function describe(i) {
  const values = data.objectives.map(({ name }, j) => `${name} ${format(trials.values[i][j], 6)}`);
  const lines = [`trial ${trials.numbers[i]}`, ...values];
  if (!trials.feasible[i]) lines.push("infeasible");
  const places = trials.places[i];
  if (places) {
    model.axes.forEach((axis, j) => {
      if (places[j] !== null) lines.push(`${axis.name} = ${valueText(axis, places[j])}`);
    });
  }
  return lines;
}

function valueText(axis, x) {
  return axis.choice ? axis.choices[x] : format(axis.decode(axis.snap(x)));
}

/* ------------------------------------------------------------------- course */

function bestSoFar(j) {
  const better = data.objectives[j].maximize ? Math.max : Math.min;
  let best = null;
  return trials.values.map((values, i) => {
    if (trials.feasible[i]) best = best === null ? values[j] : better(best, values[j]);
    return best;
  });
}

function course(parent, width, j) {
  const values = trials.values.map((each) => each[j]);
  const { recommended } = j === 0 ? data : {};
  const best = bestSoFar(j), lastBest = best[best.length - 1];
  const limits = limitsOf(values, [lastBest, ...(recommended ? [recommended.value] : [])]);
  const last = Math.max(0, ...trials.numbers, ...data.failed, ...data.pruned);
  const { plot, svg, X, Y, bottom } = frame(parent, {
    width,
    height: Math.min(340, Math.max(230, 0.45 * width)),
    x: { limits: [-0.5, last + 0.5], title: "trial", whole: true },
    y: { limits, title: data.objectives[j].name },
  });
  const at = (i) => [X(trials.numbers[i]), Y(values[i])];
  const indices = values.map((_, i) => i);
  plot.append(dots(indices.filter((i) => trials.feasible[i]).map(at), "trial large"));
  plot.append(crosses(indices.filter((i) => !trials.feasible[i]).map(at), "infeasible"));
  const steps = [];
  best.forEach((value, i) => {
    if (value === null) return;
    if (steps.length) steps.push([X(trials.numbers[i]), steps[steps.length - 1][1]]);
    steps.push([X(trials.numbers[i]), Y(value)]);
  });
  if (steps.length) steps.push([X(last), steps[steps.length - 1][1]]);
  plot.append(line(steps, "best"));
  for (const [numbers, kind] of [[data.pruned, "pruned"], [data.failed, "failed"]]) {
    const d = numbers.map((n) => `M${X(n).toFixed(1)} ${bottom - 1}v-8`).join("");
    plot.append(draw("path", { class: `rug ${kind}`, d }));
  }
  if (recommended) drawRecommended(plot, X(recommended.number), Y, recommended);
  const points = indices.map((i) => {
    const [x, y] = at(i);
    return { x, y, number: trials.numbers[i], lines: () => describe(i) };
  });
  pointing(svg, points, explorer ? (point) => explore(point.number) : null);
  courseLegend(parent, limits, values, recommended);
}

function drawRecommended(plot, x, Y, { value, low, high }) {
  plot.append(draw("line", { class: "chosen", x1: x, x2: x, y1: Y(low), y2: Y(high) }));
  const y = Y(value);
  plot.append(draw("path", { class: "chosen", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6Z` }));
}

function courseLegend(parent, limits, values, recommended) {
  const beyond = values.filter((value) => value < limits[0] || value > limits[1]).length;
  const items = [["trial", "trial"], ["best", "best so far"]];
  if (recommended) items.push(["chosen", `recommended (trial ${recommended.number}), 95 % interval`]);
  if (trials.feasible.includes(false)) items.push(["infeasible", "infeasible"]);
  if (data.pruned.length) items.push(["pruned", `pruned (${data.pruned.length})`]);
  if (data.failed.length) items.push(["failed", `failed (${data.failed.length})`]);
  if (beyond) items.push(["none", `${beyond} ${beyond === 1 ? "value lies" : "values lie"} beyond this range`]);
  legend(parent, items);
}

/* --------------------------------------------------------- parallel coordinates */

const SHADES = 8;
const STRONG = 15;
const OFF = -0.1; // where lines cross the axis of a parameter that is not active

/* Complete trials that are drawn, the worst first: indices and their ranks from 0 to 1. */
function ranked() {
  const sign = data.objectives[0].maximize ? 1 : -1;
  const drawn = trials.numbers.map((_, i) => i).filter((i) => trials.places[i]);
  drawn.sort((a, b) => sign * (trials.values[a][0] - trials.values[b][0]));
  return drawn.map((i, order) => ({ i, rank: drawn.length > 1 ? order / (drawn.length - 1) : 1 }));
}

/* Across if there is room for all axes, otherwise down the page. */
function parallel(parent, width) {
  const axes = data.order.slice(0, Number(parent.dataset.most)).map((column) => model.axes[column]);
  const order = ranked(), limits = limitsOf(trials.values.map((each) => each[0]), bestSoFar(0).slice(-1));
  const isOff = (axis) => order.some(({ i }) => trials.places[i][axis.index] === null);
  const { svg, at, across } = parallelFrame(width, axes.length + 1, axes.some(isOff));
  const value = scale(limits, [0, 1]), inside = (share) => Math.min(Math.max(share, 0), 1);
  const path = (i) => [
    ...axes.map((axis, j) => {
      const place = trials.places[i][axis.index];
      return at(j, place === null ? OFF : inside(axis.place(place)));
    }),
    at(axes.length, inside(value(trials.values[i][0]))),
  ];
  drawThreads(svg, order, path);
  const highlight = draw("g");
  svg.append(highlight);
  axes.forEach((axis, j) => {
    const off = isOff(axis) ? [[OFF, "off"]] : [];
    parallelAxis(svg, axis.name, j, at, across, [...off, ...parallelTicks(axis, across ? 320 : width)]);
  });
  const ticks = niceTicks(...limits, 4).map((tick) => [value(tick), format(tick)]);
  parallelAxis(svg, data.objectives[0].name, axes.length, at, across, ticks);
  parent.append(svg);
  const points = order.flatMap(({ i }) => {
    const lines = () => {
      highlight.replaceChildren(line(path(i), "thread chosen-thread"));
      return describe(i);
    };
    return path(i).map(([x, y]) => ({ x, y, number: trials.numbers[i], lines }));
  });
  svg.addEventListener("pointerleave", () => highlight.replaceChildren());
  pointing(svg, points, (point) => explore(point.number));
}

/* An empty picture, and where the share of an axis is in it. */
function parallelFrame(width, count, partial) {
  const across = width / count >= 92, low = partial ? 34 : 0;
  const height = across ? 370 : 66 * count + 16;
  const along = scale([0, Math.max(count - 1, 1)], across ? [10, width - 84] : [34, height - 32]);
  const over = scale([0, 1], across ? [height - 14 - low, 40] : [6 + low, width - 12]);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "plot" });
  return { svg, across, at: (j, share) => (across ? [along(j), over(share)] : [over(share), along(j)]) };
}

/* The trials as lines in a few shades. The strongest has about `STRONG` lines, however many there are. */
function drawThreads(svg, order, path) {
  const power = Math.max(1, Math.log(1 - 1 / SHADES) / Math.log(1 - Math.min(STRONG / order.length, 0.99)));
  for (let shade = 0; shade < SHADES; shade++) {
    const mine = order.filter(({ rank }) => Math.min(Math.floor(rank ** power * SHADES), SHADES - 1) === shade);
    svg.append(line(mine.flatMap(({ i }) => [...path(i), null]), `thread shade${shade}`));
  }
}

function parallelAxis(svg, name, j, at, across, ticks) {
  const [x0, y0] = at(j, 0), [x1, y1] = at(j, 1);
  svg.append(draw("line", { class: "axis strong", x1: x0, y1: y0, x2: x1, y2: y1 }));
  const room = Math.floor((x1 - x0) / 7.2);
  const words = shortened(name, across ? 13 : Math.min(room, 40));
  svg.append(across ? text(x1 - 6, y1 - 18, words, "name") : text(x0, y0 - 10, words, "name halo"));
  let free = -Infinity;
  for (const [share, full] of ticks) {
    const [x, y] = at(j, share), label = shortened(full, across ? 10 : room);
    if (across) svg.append(text(x + 5, y + 4, label, "tick halo"));
    else {
      const half = 3.3 * label.length, from = share < 0 ? x : Math.min(Math.max(x, x0 + half), x1 - half);
      svg.append(draw("line", { class: "axis", x1: x, x2: x, y1: y, y2: y + 4 }));
      if (from - half < free) continue;
      svg.append(text(from, y + 16, label, "tick middle halo"));
      free = from + half + 8;
    }
  }
}

function parallelTicks(axis, length) {
  if (axis.choice) {
    const every = Math.ceil(axis.levels / 12);
    return axis.choices.map((words, c) => [axis.place(c), words]).filter((_, c) => c % every === 0);
  }
  const { ticks, label } = panelTicks(axis, Math.min(length, 330));
  return ticks.map((tick) => [tick, label(tick)]);
}

/* -------------------------------------------------------------------- front */

function front(parent, width) {
  const pairs = data.objectives.flatMap((_, j) => data.objectives.slice(j + 1).map((_other, k) => [j, j + 1 + k]));
  const columns = pairs.length > 1 && width > 680 ? 2 : 1;
  const grid = el("div", { class: `grid${columns}` });
  const best = new Set(data.best);
  parent.append(grid);
  for (const [j, k] of pairs) {
    const cell = el("div");
    grid.append(cell);
    const mine = trials.numbers.map((_, i) => i).filter((i) => best.has(trials.numbers[i]));
    const limits = (o) => limitsOf(trials.values.map((v) => v[o]), mine.map((i) => trials.values[i][o]));
    const { plot, svg, X, Y } = frame(cell, {
      width: Math.floor(width / columns) - (columns > 1 ? 12 : 0),
      height: 320,
      x: { limits: limits(j), title: axisTitle(j) },
      y: { limits: limits(k), title: axisTitle(k) },
    });
    const at = (i) => [X(trials.values[i][j]), Y(trials.values[i][k])];
    const others = trials.numbers.map((_, i) => i).filter((i) => !best.has(trials.numbers[i]));
    plot.append(dots(others.filter((i) => trials.feasible[i]).map(at), "trial large"));
    plot.append(crosses(others.filter((i) => !trials.feasible[i]).map(at), "infeasible"));
    if (data.objectives.length === 2) plot.append(line(staircase(mine, j, k, X, Y), "best"));
    plot.append(dots(mine.map(at), "front"));
    const points = trials.numbers.map((number, i) => {
      const [x, y] = at(i);
      return { x, y, number, lines: () => describe(i) };
    });
    pointing(svg, points, explorer ? (point) => explore(point.number) : null);
  }
  const items = [["front", `front (${best.size})`], ["trial", "dominated"]];
  if (trials.feasible.includes(false)) items.push(["infeasible", "infeasible"]);
  legend(parent, items);
}

function axisTitle(j) {
  const { name, maximize } = data.objectives[j];
  return `${name} (${maximize ? "larger" : "smaller"} is better)`;
}

/* The border of what the front dominates, along the first objective. */
function staircase(front, j, k, X, Y) {
  const order = front.slice().sort((a, b) => trials.values[a][j] - trials.values[b][j]);
  const later = !data.objectives[j].maximize, steps = [];
  order.forEach((i, at) => {
    const [x, y] = [X(trials.values[i][j]), Y(trials.values[i][k])];
    const before = at ? steps[steps.length - 1] : null;
    if (before) steps.push(later ? [x, before[1]] : [before[0], y]);
    steps.push([x, y]);
  });
  return steps;
}

/* -------------------------------------------------------------------- curves */

const ENDED = { complete: 0, failed: 1, pruned: 2, paused: 3, waiting: 4, running: 5 };

function curves(parent, width) {
  const { lastStep, best, objective, left } = data.curves, { maximize } = data.objectives[0];
  const known = data.curves.curves
    .map((each) => ({ ...each, points: each.points.filter(([, value]) => value !== null) }))
    .filter((each) => each.points.length)
    .sort((a, b) => ENDED[a.state] - ENDED[b.state]);
  const end = ({ points }) => points[points.length - 1][1];
  const ends = known.flatMap((each) => [end(each), ...(each.forecast ? [each.forecast[0]] : [])]);
  const first = Math.min(...known.map(({ points }) => points[0][0]));
  const top = known.find(({ number }) => number === best);
  const { plot, svg, X, Y } = frame(parent, {
    width,
    height: Math.min(380, Math.max(250, 0.5 * width)),
    x: { limits: [first, Math.max(lastStep, first + 1)], title: "step", whole: true },
    // Almost half of all may have diverged.
    y: { limits: limitsOf(ends, top ? [end(top)] : [], maximize ? [0.5, 1] : [0, 0.5]), title: objective },
    right: 20,
  });
  const path = (each) => each.points.map(([step, value]) => [X(step), Y(value)]);
  for (const each of known) {
    plot.append(line(path(each), `curve ${each.state}`));
    if (each.state !== "complete") plot.append(dots(path(each).slice(-1), `curve-end ${each.state}`));
  }
  if (top) plot.append(line(path(top), "best"));
  const forecast = known.filter((each) => each.forecast);
  forecast.forEach((each, i) => drawForecast(plot, each, X(lastStep) - 4 * (i % 12), X, Y));
  const points = (each) => path(each).map(([x, y], i) => ({ x, y, lines: () => describeCurve(each, i) }));
  pointing(svg, known.flatMap(points));
  const keys = Object.keys(ENDED)
    .map((state) => [state, known.filter((each) => each.state === state).length])
    .filter(([, count]) => count)
    .map(([state, count]) => [`curve ${state}`, `${state} (${count})`]);
  if (top) keys.push(["best", `best (trial ${best})`]);
  if (forecast.length) keys.push(["forecast", "forecast, 95 %"]);
  if (left) keys.push(["none", `${left} more ${left === 1 ? "curve is" : "curves are"} not drawn`]);
  legend(parent, keys);
}

function describeCurve({ number, state, points, forecast }, i) {
  const lines = [`trial ${number}, ${state}`, `step ${points[i][0]}: ${format(points[i][1])}`];
  if (forecast) lines.push(`forecast ${format(forecast[0])}`, interval(forecast[1], forecast[2]));
  return lines;
}

function drawForecast(plot, { points, forecast: [value, low, high], state }, end, X, Y) {
  const [step, from] = points[points.length - 1];
  plot.append(line([[X(step), Y(from)], [end, Y(value)]], `forecast ${state}`));
  plot.append(line([[end, Y(low)], [end, Y(high)]], `forecast-end ${state}`));
}

/* -------------------------------------------------------------------- quality */

/* Each value against its prediction from all others. */
function quality(parent, width, j) {
  const { measured, expected, low, high } = data.quality[j];
  const limits = limitsOf([...measured, ...expected]);
  const size = Math.min(width, 420);
  const name = data.objectives[j].name;
  const { plot, svg, X, Y } = frame(parent, {
    width: size,
    height: Math.max(0.8 * size, 260),
    x: { limits, title: `${name}, measured` },
    y: { limits, title: `${name}, predicted from all other trials` },
  });
  plot.append(line([[X(limits[0]), Y(limits[0])], [X(limits[1]), Y(limits[1])]], "diagonal"));
  const inside = measured.map((value, i) => value >= low[i] && value <= high[i]);
  const indices = measured.map((_, i) => i), at = (i) => [X(measured[i]), Y(expected[i])];
  for (const [wanted, kind] of [[true, "inside"], [false, "outside"]]) {
    const mine = indices.filter((i) => inside[i] === wanted);
    const d = mine.map((i) => `M${at(i)[0].toFixed(1)} ${Y(low[i]).toFixed(1)}V${Y(high[i]).toFixed(1)}`).join("");
    plot.append(draw("path", { d, class: `error ${kind}` }), dots(mine.map(at), kind));
  }
  const lines = (i) => [
    `measured ${format(measured[i])}`,
    `predicted ${format(expected[i])}`,
    interval(low[i], high[i]),
  ];
  pointing(svg, indices.map((i) => ({ x: at(i)[0], y: at(i)[1], lines: () => lines(i) })));
  legend(parent, [["inside", "within its 95 % interval"], ["outside", "outside"]]);
}

/* ----------------------------------------------------------------------- page */

function start() {
  const root = section("explorer");
  if (root && model) explorer = new Explorer(root, data, model);
  const each = (id, render) => {
    for (const node of document.querySelectorAll(`[data-chart="${id}"]`)) {
      responsive(node, (parent, width) => render(parent, width, Number(node.dataset.objective || 0)));
    }
  };
  each("course", course);
  each("parallel", parallel);
  each("front", front);
  each("curves", curves);
  each("quality", quality);
  window.lazyboReport = { model, explorer, data };
}

start();

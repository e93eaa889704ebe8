/* The model, alive: a slider for each parameter, the prediction there, and the model along each parameter. */

const FINE = 1000; // positions of the slider of a continuous parameter
const RIGHT_AXIS = 40; // room for the axis of a probability

class Explorer {
  constructor(root, data, model) {
    Object.assign(this, { root, data, model, shown: 0, outdated: new Set() });
    this.axes = model.axes;
    this.coordinates = this.start();
    this.limits = data.objectives.map((_, j) => this.valueLimits(j));
    this.build();
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.grid);
    model.prepare(() => {
      root.classList.add("ready");
      this.update();
    });
  }

  /* The recommended trial, or one in the middle of the front; the middle of the space if there is neither. */
  start() {
    const { recommended, trials } = this.data;
    const first = (number) => trials.values[trials.numbers.indexOf(number)][0];
    const front = this.data.best.slice().sort((a, b) => first(a) - first(b));
    const middle = this.axes.map((axis) => axis.snap(axis.choice ? 0 : 0.5));
    const places = this.placesOf(recommended ? recommended.number : front[front.length >> 1]);
    return places ? this.filled(places, middle) : middle;
  }

  /* The coordinates of a trial: exact for the recommended and the best one, to six digits for the others. */
  placesOf(number) {
    const { trials, recommended, bestPlaces } = this.data;
    if (recommended && recommended.places && recommended.number === number) return recommended.places;
    if (bestPlaces && this.data.best[0] === number) return bestPlaces;
    return trials.places[trials.numbers.indexOf(number)];
  }

  filled(places, otherwise) {
    return this.axes.map((axis, j) => axis.snap(places[j] === null ? otherwise[j] : places[j]));
  }

  valueLimits(j) {
    const values = this.data.trials.values.map((each) => each[j]);
    return limitsOf(values, []);
  }

  /* ------------------------------------------------------------------ build */

  build() {
    const { data, model } = this;
    this.readings = data.objectives.map((objective) => this.reading(objective));
    this.chances = [];
    if (model.constraints.length) this.chances.push(["chance to be feasible", () => model.feasible(this.coordinates)]);
    if (model.success) this.chances.push(["chance of success", () => model.chance(model.success, this.coordinates)]);
    this.chances = this.chances.map(([words, of]) => {
      const number = el("b", {}, "–");
      return { of, number, node: el("span", { class: "chance" }, `${words}: `, number) };
    });
    const chances = el("div", { class: "chances" }, ...this.chances.map((each) => each.node));
    this.head = el("div", { class: "readings" }, ...this.readings.map((each) => each.node), chances);
    this.grid = el("div", { class: "panels" });
    this.panels = data.order.map((column) => this.panel(this.axes[column]));
    this.grid.append(...this.panels.map((panel) => panel.node));
    const tools = el("div", { class: "tools" }, this.starts(), data.objectives.length > 1 ? this.switch() : null);
    this.root.append(tools, this.head, this.grid);
  }

  reading(objective) {
    const value = el("output", { class: "value" }, "–");
    const interval = el("span", { class: "interval" }, "");
    const mark = el("i", { class: "range-mark" }), bar = el("i", { class: "range-bar" });
    const range = el("div", { class: "range", "aria-hidden": "true" }, bar, mark);
    const words = `${objective.name}, ${objective.maximize ? "larger" : "smaller"} is better`;
    const title = el("span", { class: "reading-name" }, words);
    return { value, interval, mark, bar, node: el("div", { class: "reading" }, title, value, interval, range) };
  }

  starts() {
    const { recommended, best } = this.data;
    const row = el("div", { class: "starts" });
    const button = (words, number) => {
      const node = el("button", { type: "button" }, words);
      node.addEventListener("click", () => this.load(number));
      row.append(node);
    };
    if (recommended && this.placesOf(recommended.number)) button("Recommended", recommended.number);
    if (this.data.objectives.length === 1 && best.length && this.placesOf(best[0])) button("Best seen", best[0]);
    const choose = el("input", { type: "number", min: 0, placeholder: "number" });
    choose.addEventListener("change", () => this.load(Number(choose.value)));
    row.append(el("label", {}, "trial ", choose));
    return row;
  }

  switch() {
    const select = el("select", { "aria-label": "Objective of the pictures" });
    this.data.objectives.forEach((objective, j) => select.append(el("option", { value: j }, objective.name)));
    select.addEventListener("change", () => {
      this.shown = Number(select.value);
      this.resize(true);
    });
    return el("label", { class: "switch" }, "curves show ", select);
  }

  panel(axis) {
    const set = (x) => {
      this.coordinates[axis.index] = axis.snap(x);
      this.update();
    };
    // The levels of a linear axis are evenly spaced; on a logarithmic one the slider follows the axis.
    const byLevel = axis.levels && axis.levels <= FINE && !axis.log;
    const named = { "aria-label": axis.name };
    const slider = el("input", { type: "range", min: 0, max: byLevel ? axis.levels - 1 : FINE, step: 1, ...named });
    slider.addEventListener("input", () => set(byLevel ? axis.atLevel(Number(slider.value)) : slider.value / FINE));
    const entry = axis.choice ? el("select", named) : el("input", { type: "number", step: "any", ...named });
    if (axis.choice) axis.choices.forEach((words, c) => entry.append(el("option", { value: c }, words)));
    entry.addEventListener("change", () => {
      if (entry.value !== "" && Number.isFinite(Number(entry.value))) set(this.encoded(axis, Number(entry.value)));
      else this.update();
    });
    const chart = el("div", { class: "slice" });
    const name = el("span", { class: "name", title: axis.name }, axis.name);
    const head = el("label", { class: "panel-head" }, name, entry);
    const node = el("div", { class: "panel", "data-parameter": axis.index }, head, chart, axis.choice ? null : slider);
    const write = () => {
      const x = this.coordinates[axis.index];
      // A slider that is being moved stays where it is, between two levels: it could not leave the first one otherwise.
      if (document.activeElement !== slider || byLevel) slider.value = byLevel ? axis.level(x) : Math.round(FINE * x);
      entry.value = axis.choice ? axis.level(x) : shortNumber(axis.decode(x), axis);
    };
    return { axis, node, chart, slider, entry, write };
  }

  encoded(axis, value) {
    if (axis.choice) return value;
    return axis.encode(Math.min(Math.max(value, axis.low), axis.high));
  }

  /* ------------------------------------------------------------------- move */

  /* Move all sliders to a trial. */
  load(number) {
    const places = this.placesOf(number);
    if (!places) return;
    this.coordinates = this.filled(places, this.coordinates);
    this.update();
  }

  /* Write the new prediction at once, and draw the curves soon. Those that wait longest come first. */
  update() {
    this.write();
    for (const panel of this.panels) this.outdated.add(panel);
    cancelAnimationFrame(this.waiting);
    this.waiting = requestAnimationFrame(() => this.drawPanels());
  }

  write() {
    const { model, data } = this;
    this.readings.forEach((reading, j) => {
      const { value, low, high } = model.predict(model.objectives[j], this.coordinates);
      reading.value.textContent = format(value, 5);
      reading.value.dataset.exact = `${value} ${low} ${high}`;
      reading.interval.textContent = low === null ? "computing the interval …" : interval(low, high);
      const place = scale(this.limits[j], [0, 100]);
      const inside = (each) => Math.min(Math.max(place(each), 0), 100);
      reading.mark.style.left = `${inside(value)}%`;
      reading.bar.style.left = `${inside(low ?? value)}%`;
      reading.bar.style.right = `${100 - inside(high ?? value)}%`;
    });
    for (const each of this.chances) each.number.textContent = percent(each.of());
    for (const panel of this.panels) {
      const active = panel.axis.isActive(this.coordinates);
      panel.write();
      panel.slider.disabled = panel.entry.disabled = !active;
      panel.node.classList.toggle("inactive", !active);
      if (!active && !panel.told) {
        panel.told = el("p", { class: "needs" }, whenActive(panel.axis, this.axes));
        panel.node.append(panel.told);
      }
    }
  }

  /* ----------------------------------------------------------------- slices */

  resize(always = false) {
    const width = this.panels.length ? Math.floor(this.panels[0].chart.clientWidth) : 0;
    if (!width || (width === this.width && always !== true)) return;
    this.width = width;
    for (const panel of this.panels) this.framePanel(panel);
    this.update();
  }

  framePanel(panel) {
    const { axis } = panel, objective = this.shown;
    panel.chart.replaceChildren();
    const last = axis.choice ? axis.levels - 1 : 1;
    const limits = axis.choice ? [-0.5, last + 0.5] : [0, 1];
    const width = this.width, constrained = this.model.constraints.length > 0, right = constrained ? RIGHT_AXIS : 10;
    const x = { limits, ...panelTicks(axis, width) }, y = { limits: this.limits[objective] };
    panel.frame = frame(panel.chart, { width, height: 150, x, y, right });
    const { plot, X, Y, svg, box } = panel.frame;
    // The thumb of a slider stays inside of it by half its width.
    panel.node.style.setProperty("--left", `${box.left - 8}px`);
    panel.node.style.setProperty("--right", `${right - 8}px`);
    panel.layer = draw("g");
    plot.append(this.seen(axis, objective, X, Y), panel.layer);
    if (constrained) {
      panel.chanceAt = scale([0, 1], [panel.frame.bottom, box.top]);
      for (const share of [0, 0.5, 1]) {
        svg.append(text(width - RIGHT_AXIS + 5, panel.chanceAt(share) + 4, `${100 * share}%`, "tick chance"));
      }
    }
    svg.addEventListener("click", (event) => {
      const bounds = svg.getBoundingClientRect();
      const place = X.invert(((event.clientX - bounds.left) * width) / bounds.width);
      if (!panel.slider.disabled) {
        this.coordinates[axis.index] = axis.snap(Math.min(Math.max(place, 0), last));
        this.update();
      }
    });
  }

  /* The trials, as dots; infeasible ones as crosses. */
  seen(axis, objective, X, Y) {
    const { trials } = this.data, fine = [], wrong = [];
    trials.places.forEach((places, i) => {
      if (!places || places[axis.index] === null) return;
      const jitter = axis.choice ? 0.18 * Math.sin(12.9898 * i) : 0;
      (trials.feasible[i] ? fine : wrong).push([X(places[axis.index] + jitter), Y(trials.values[i][objective])]);
    });
    return draw("g", {}, dots(fine, "trial"), crosses(wrong, "infeasible", 2.5));
  }

  /* Draw the curves of outdated panels for a while, then let the page breathe. */
  drawPanels() {
    const until = performance.now() + 24;
    for (const panel of this.outdated) {
      if (performance.now() > until) {
        this.waiting = requestAnimationFrame(() => this.drawPanels());
        return;
      }
      this.outdated.delete(panel);
      this.drawPanel(panel);
    }
  }

  drawPanel({ axis, layer, frame: { X, Y, bottom, box }, chanceAt }) {
    layer.replaceChildren();
    if (!axis.isActive(this.coordinates)) return;
    const objective = this.model.objectives[this.shown];
    const found = placesOf(axis, this.model.rows).map((x) => {
      const there = this.coordinates.slice();
      there[axis.index] = x;
      const chance = chanceAt ? this.model.feasible(there) : null;
      return { at: X(x), chance, ...this.model.predict(objective, there) };
    });
    const sure = found[0].low !== null;
    if (axis.choice) {
      const half = Math.min(9, 0.35 * (X(1) - X(0)));
      for (const { at, value, low, high } of found) {
        if (sure) layer.append(draw("line", { class: "whisker", x1: at, x2: at, y1: Y(low), y2: Y(high) }));
        layer.append(draw("line", { class: "median", x1: at - half, x2: at + half, y1: Y(value), y2: Y(value) }));
      }
    } else {
      if (sure) layer.append(band(found.map((p) => [p.at, Y(p.high)]), found.map((p) => [p.at, Y(p.low)]), "band"));
      layer.append(line(found.map((p) => [p.at, Y(p.value)]), "median"));
    }
    if (chanceAt && found[0].chance !== null) {
      layer.append(line(found.map((p) => [p.at, chanceAt(p.chance)]), "chance"));
    }
    const here = X(this.coordinates[axis.index]), now = Y(this.model.predict(objective, this.coordinates).value);
    layer.append(draw("line", { class: "here", x1: here, x2: here, y1: box.top, y2: bottom }));
    layer.append(draw("circle", { class: "here", cx: here, cy: now, r: 4 }));
  }
}

/* Coordinates along a parameter: its levels if they are few, else a grid, coarser if there are many trials. */
function placesOf(axis, rows) {
  const most = rows > 400 ? 41 : 81;
  if (axis.levels && axis.levels <= most) return Array.from({ length: axis.levels }, (_, level) => axis.atLevel(level));
  if (axis.choice) return Array.from({ length: most }, (_, i) => Math.round((i * (axis.levels - 1)) / (most - 1)));
  return Array.from({ length: most }, (_, i) => i / (most - 1));
}

function panelTicks(axis, width) {
  if (axis.choice) {
    const every = Math.ceil(axis.levels / Math.max(Math.floor(width / 55), 1));
    const room = Math.max(4, Math.floor(((width - 60) * every) / axis.levels / 7));
    const label = (c) => shortened(axis.choices[c], room);
    return { ticks: axis.choices.map((_, c) => c).filter((c) => c % every === 0), label };
  }
  const count = width / 75, { low, high, origin, extent } = axis;
  const values = axis.log ? logTicks(low, high, count) : niceTicks(low, high, count, axis.kind === "whole");
  const places = new Map(values.map((value) => [(axis.measure(value) - origin) / extent, value]));
  return { ticks: [...places.keys()], label: (place) => format(places.get(place)) };
}

/* A number as a person would write it: with five digits, whole ones in full. */
function shortNumber(value, axis) {
  return axis.kind === "whole" ? String(value) : String(Number(value.toPrecision(5)));
}

function whenActive(axis, axes) {
  const parts = axis.needs.map(([column, wanted]) => {
    const parent = axes[column];
    const values = wanted.map((w) => (parent.choice ? parent.choices[w] : format(parent.decode(w))));
    return `${parent.name} is ${values.join(" or ")}`;
  });
  return `only active while ${parts.join(" and ")}`;
}

/* The Gaussian process of a study: the same numbers as `Optimizer.predict`, from the data of `report/page_data.py`.
 *
 *   X      points of the rows, by columns; NaN: inactive                      n × w
 *   Z      features: coordinates along each column, without length scales      n × D
 *   k      σ² [(1 - a) M(√5 r) + a/d Σⱼ M(√(5d) rⱼ)], M(s) = (1 + s + s²/3) exp(-s)
 *   L      factor of K = k(X, X) + noise, by rows: row i begins at i (i + 1)/2
 *   v, w   L⁻¹ k(X, u), L⁻¹ t
 *   m      prior mean, 0 without earlier studies
 *   mean   m + vᵀ w, or m + k(u, X) α while there is no factor;  variance   σ² - vᵀ v
 */

const SQRT_5 = Math.sqrt(5);
const INACTIVE = 0.5;
const INACTIVE_CHOICE = -1; // the feature of a choice is the choice itself, which is only compared
const MAX_DISTANCE = 1e3;
const PIVOT_FLOOR = 1e-10;
// Quantiles of a mixture, as in `lazybo.gp.mixture`.
const BISECTIONS = 40, REACH = 8;
const MAX_DEVIATION = 1e25;
const KERNELS = ["matern52", "additive"];

function doubles(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

/* One parameter: its values as coordinates, as `lazybo.space.axis` does. One with structure is a choice among the values
 * that were tried: `rows` of X have their columns. */
class Axis {
  constructor(spec, index) {
    Object.assign(this, spec, { index, choice: spec.kind === "choice" });
    if (this.choice) {
      this.levels = spec.choices.length;
      return;
    }
    this.half = Number.isFinite(spec.high - spec.low) ? 1 : 0.5;
    this.origin = this.measure(spec.low);
    this.extent = this.measure(spec.high) - this.origin;
  }

  measure(value) {
    return this.log ? Math.log(value) : value * this.half;
  }

  /* The coordinate of a number, or of the position of a choice. */
  encode(value) {
    if (this.choice) return value;
    const steps = (value * this.half - this.low * this.half) / (this.step * this.half);
    if (this.levels) return this.atLevel(Math.round(steps));
    return (this.measure(value) - this.origin) / this.extent;
  }

  decode(x) {
    if (this.choice) return Math.round(x);
    if (x <= 0) return this.low;
    if (x >= 1 && !this.levels) return this.high;
    if (this.levels) return this.low + this.level(x) * this.step;
    const scaled = this.origin + x * this.extent;
    return Math.min(Math.max(this.log ? Math.exp(scaled) : scaled / this.half, this.low), this.high);
  }

  level(x) {
    if (this.choice) return Math.round(x);
    const last = this.levels - 1;
    const level = this.log ? (Math.exp(this.origin + x * this.extent) - this.low) / this.step : x * last;
    return Math.min(Math.max(Math.round(level), 0), last);
  }

  atLevel(level) {
    if (this.choice) return level;
    if (!this.log) return level / (this.levels - 1);
    return (Math.log(this.low + level * this.step) - this.origin) / this.extent;
  }

  /* The nearest coordinate that belongs to a value. */
  snap(x) {
    const inside = Math.min(Math.max(x, 0), this.choice ? this.levels - 1 : 1);
    return this.levels ? this.atLevel(this.level(inside)) : inside;
  }

  /* The position of a coordinate from 0 to 1, for axes and sliders. */
  place(x) {
    return this.choice ? x / Math.max(this.levels - 1, 1) : x;
  }

  /* Whether a parameter is active at a point; its parents come first there. */
  isActive(point) {
    return this.needs.every(([column, wanted]) => wanted.some((w) => Math.abs(point[column] - w) <= 1e-12));
  }
}

/* Where each column begins in a point and in its features, and how many numbers these have in all. */
function layoutOf(columns) {
  let width = 0, numbers = 0;
  const spans = columns.map(({ categories, conditional, size }) => {
    const first = width, at = numbers;
    width += categories || !conditional ? size : size + 1;
    numbers += size;
    return { first, end: width, at, size, categories, conditional };
  });
  return { spans, width, numbers };
}

/* The squared distance of two choices; one of them may be inactive. */
function choiceSquare(one, other, categories) {
  if (one === other) return 0;
  return one === INACTIVE_CHOICE || other === INACTIVE_CHOICE ? 1.5 - 0.5 / categories : 1;
}

function matern(s) {
  const t = Math.min(s, MAX_DISTANCE);
  return (1 + t + (t * t) / 3) * Math.exp(-t);
}

/* A covariance function with its parameters. */
class Kernel {
  constructor(values, { dim, layout, additive }) {
    Object.assign(this, { dim, layout, scales: values.slice(0, dim), scale: values[dim] });
    this.share = additive ? values[dim + 1] : 0;
  }

  /* Write the features of the point that begins at `from` of an array. */
  features(points, from, out, to) {
    for (const { first, end, at, size, categories, conditional } of this.layout.spans) {
      const inactive = Number.isNaN(points[from + at]);
      const instead = categories ? INACTIVE_CHOICE : INACTIVE;
      for (let i = 0; i < size; i++) out[to + first + i] = inactive ? instead : points[from + at + i];
      if (conditional && !categories) out[to + end - 1] = inactive ? 1 : 0;
    }
  }

  /* k between two rows of features, which begin at `at` and `to`. */
  entry(u, at, z, to) {
    const { layout, dim, share } = this;
    const unit = Math.sqrt(5 * dim);
    let square = 0, sum = 0;
    for (let j = 0; j < dim; j++) {
      const { first, end, categories } = layout.spans[j];
      let own = categories ? choiceSquare(u[at + first], z[to + first], categories) : 0;
      for (let f = categories ? end : first; f < end; f++) {
        const difference = u[at + f] - z[to + f];
        own += difference * difference;
      }
      own /= this.scales[j] ** 2;
      square += own;
      if (share) sum += matern(unit * Math.sqrt(own));
    }
    return this.scale * ((1 - share) * matern(SQRT_5 * Math.sqrt(square)) + (share / dim) * sum);
  }

  /* k between a point and all rows of Z, n. */
  covariances(point, z) {
    const { width } = this.layout;
    const u = new Float64Array(width), k = new Float64Array(z.length / width);
    this.features(point, 0, u, 0);
    for (let i = 0; i < k.length; i++) k[i] = this.entry(u, 0, z, i * width);
    return k;
  }
}

/* Σ a[i] b[i] of two stretches of the same length. Four sums: one would wait for each addition. */
function dot(a, i, b, j, length) {
  let p = 0, q = 0, r = 0, s = 0, t = 0;
  for (; t + 3 < length; t += 4) {
    p += a[i + t] * b[j + t];
    q += a[i + t + 1] * b[j + t + 1];
    r += a[i + t + 2] * b[j + t + 2];
    s += a[i + t + 3] * b[j + t + 3];
  }
  for (; t < length; t++) p += a[i + t] * b[j + t];
  return p + q + (r + s);
}

/* What a process expects where it has no rows of its own: an offset, and a sum over the trials of earlier studies. */
class PriorMean {
  constructor(spec, shared) {
    this.kernel = new Kernel(spec.values, shared);
    this.z = doubles(spec.z);
    this.weights = doubles(spec.weights);
    this.offset = spec.offset;
  }

  at(point) {
    return this.offset + dot(this.kernel.covariances(point, this.z), 0, this.weights, 0, this.weights.length);
  }
}

/* The process of one output. The mean is known at once; the variance when `grow` has added all rows to the factor. */
class Process {
  constructor(spec, shared) {
    const { layout, n, rows } = shared;
    Object.assign(this, { n, rows, width: layout.width });
    this.kernel = new Kernel(spec.values, shared);
    this.alpha = doubles(spec.alpha);
    this.added = doubles(spec.added);
    this.targets = spec.targets && doubles(spec.targets);
    this.prior = spec.prior && new PriorMean(spec.prior, shared);
    this.w = new Float64Array(n);
    this.z = new Float64Array(n * layout.width);
    for (let i = 0; i < n; i++) this.kernel.features(shared.x, i * layout.numbers, this.z, i * layout.width);
    this.m = rows ? rows.length : n;
    this.factor = new Float64Array((this.m * (this.m + 1)) / 2);
    this.grown = 0;
  }

  get ready() {
    return this.grown === this.m;
  }

  /* Add rows to the factor until this time (of `performance.now`). */
  grow(until) {
    const { factor, kernel, z, width, rows } = this;
    while (!this.ready && performance.now() < until) {
      const i = this.grown, start = (i * (i + 1)) / 2;
      const row = rows ? rows[i] : i;
      for (let j = 0; j < i; j++) {
        const before = (j * (j + 1)) / 2;
        const k = kernel.entry(z, row * width, z, (rows ? rows[j] : j) * width);
        factor[start + j] = (k - dot(factor, before, factor, start, j)) / factor[before + j];
      }
      const diagonal = kernel.scale + this.added[row];
      const pivot = diagonal - dot(factor, start, factor, start, i);
      factor[start + i] = Math.sqrt(Math.max(pivot, PIVOT_FLOOR * diagonal));
      if (this.targets) this.w[i] = (this.targets[i] - dot(factor, start, this.w, 0, i)) / factor[start + i];
      this.grown++;
    }
  }

  /* Mean and, if the factor is ready, variance of the latent function at a point. */
  posterior(point) {
    const k = this.kernel.covariances(point, this.z), expected = this.prior ? this.prior.at(point) : 0;
    const mean = expected + dot(k, 0, this.alpha, 0, this.n);
    if (!this.ready) return { mean, variance: null };
    const v = this.solved(this.rows ? Float64Array.from(this.rows, (row) => k[row]) : k);
    const variance = Math.max(this.kernel.scale - dot(v, 0, v, 0, this.m), 0);
    return { mean: this.targets ? expected + dot(v, 0, this.w, 0, this.n) : mean, variance };
  }

  /* L⁻¹ k, in place. */
  solved(k) {
    const { factor, m } = this;
    for (let i = 0, start = 0; i < m; start += ++i) k[i] = (k[i] - dot(factor, start, k, 0, i)) / factor[start + i];
    return k;
  }
}

/* Several processes with their weights, as `Posterior` in `lazybo.gp.mixture`. */
class Mixture {
  constructor(spec, shared) {
    this.processes = spec.particles.map((particle) => new Process({ ...particle, prior: spec.prior }, shared));
    this.weights = spec.weights;
  }

  get ready() {
    return this.processes.every((process) => process.ready);
  }

  grow(until) {
    this.processes.forEach((process) => process.grow(until));
  }

  /* Mean and, if the factors are ready, standard deviation of each process at a point. */
  components(point) {
    const found = this.processes.map((process) => process.posterior(point));
    return found.map(({ mean, variance }) => ({ mean, std: variance === null ? null : Math.sqrt(variance) }));
  }

  /* Σ w f over the components. */
  average(components, f) {
    return components.reduce((sum, component, i) => sum + this.weights[i] * f(component), 0);
  }

  /* A quantile of the mixture, by bisection. */
  quantile(components, level) {
    let low = Math.min(...components.map(({ mean, std }) => mean - REACH * std));
    let high = Math.max(...components.map(({ mean, std }) => mean + REACH * std));
    for (let i = 0; i < BISECTIONS; i++) {
      const middle = (low + high) / 2;
      if (this.average(components, ({ mean, std }) => normalCdf((middle - mean) / std)) < level) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }
}

/* From a target of the process back to a value of the objective, as `Warping.inverse`. */
function unwarped(warping, target) {
  const { exponent, middle, width, power, shift, scale } = warping;
  const bent = target * scale + shift;
  const most = Math.log1p(MAX_DEVIATION);
  let deviation;
  if (bent >= 0) {
    const above = power ? Math.log1p(Math.max(power * bent, -1)) / power : bent;
    deviation = Math.expm1(Math.min(above, most));
  } else {
    deviation = -Math.expm1(Math.min(Math.log1p((2 - power) * -bent) / (2 - power), most));
  }
  // In two steps, since 2 to the exponent alone may overflow.
  const part = Math.trunc(exponent / 2);
  const value = (middle + width * deviation) * 2 ** part * 2 ** (exponent - part);
  return Math.min(Math.max(value, -Number.MAX_VALUE), Number.MAX_VALUE);
}

/* Φ(z), by the series φ(z) (z + z³/3 + z⁵/15 + …). */
function normalCdf(z) {
  if (Math.abs(z) > 8) return z > 0 ? 1 : 0;
  let term = z, sum = z;
  for (let i = 3; Math.abs(term) > 1e-17 * Math.abs(sum); i += 2) sum += term *= (z * z) / i;
  return Math.min(Math.max(0.5 + (sum * Math.exp((-z * z) / 2)) / Math.sqrt(2 * Math.PI), 0), 1);
}

/* All outputs of a study. */
class Model {
  constructor(data) {
    this.data = data;
    this.axes = data.parameters.map((spec, index) => new Axis(spec, index));
    const x = doubles(data.x), dim = data.columns.length;
    if (!KERNELS.includes(data.kernel)) throw new Error(`this page cannot compute the kernel "${data.kernel}"`);
    const additive = data.kernel === "additive";
    const layout = layoutOf(data.columns);
    const shared = { x, dim, n: x.length / layout.numbers, layout, additive, rows: data.rows };
    this.objectives = data.objectives.map((spec) => ({ ...spec, mixture: new Mixture(spec, shared) }));
    this.constraints = data.constraints.map((spec) => ({ ...spec, mixture: new Mixture(spec, shared) }));
    this.success = data.success && { ...data.success, mixture: new Mixture(data.success, shared) };
    Object.assign(this, { x, rows: shared.n, numbers: layout.numbers });
    this.outputs = [...this.objectives, ...this.constraints, ...(this.success ? [this.success] : [])];
  }

  get ready() {
    return this.outputs.every((output) => output.mixture.ready);
  }

  /* Factor all outputs in slices of a few milliseconds, so that the page stays responsive. */
  prepare(done) {
    const until = performance.now() + 12;
    this.outputs.forEach((output) => output.mixture.grow(until));
    if (this.ready) done();
    else setTimeout(() => this.prepare(done), 0);
  }

  /* The point at some coordinates of the parameters: NaN in columns of those that are not active. */
  pointAt(coordinates) {
    const point = new Float64Array(this.numbers);
    let at = 0;
    this.axes.forEach((axis, j) => {
      const row = axis.rows ? axis.rows[coordinates[j]] * this.numbers : null;
      for (const end = at + axis.width; at < end; at++) {
        point[at] = !axis.isActive(coordinates) ? NaN : axis.rows ? this.x[row + at] : coordinates[j];
      }
    });
    return point;
  }

  /* Expected value and 95 % interval of an objective at coordinates; the interval is null until the factor is ready. */
  predict(objective, coordinates) {
    const { mixture, warping, sign } = objective;
    const components = mixture.components(this.pointAt(coordinates));
    const unwarp = (target) => sign * unwarped(warping, target) + 0;
    const value = unwarp(mixture.average(components, ({ mean }) => mean));
    if (!mixture.ready) return { value, low: null, high: null };
    const wide = components.map(({ mean, std }) => ({ mean, std: Math.max(this.data.widened * std, Number.MIN_VALUE) }));
    const levels = sign < 0 ? [...this.data.interval].reverse() : this.data.interval;
    const [low, high] = levels.map((level) => unwarp(mixture.quantile(wide, level)));
    return { value, low: Math.min(low, value), high: Math.max(high, value) };
  }

  chance({ mixture, threshold }, coordinates) {
    const components = mixture.components(this.pointAt(coordinates));
    if (!mixture.ready) return null;
    const below = ({ mean, std }) => normalCdf((threshold - mean) / Math.max(std, this.data.minDeviation));
    return mixture.average(components, below);
  }

  /* The probability that all measured constraints hold; null until the factors are ready. */
  feasible(coordinates) {
    const chances = this.constraints.map((limit) => this.chance(limit, coordinates));
    return chances.some((chance) => chance === null) ? null : chances.reduce((product, chance) => product * chance, 1);
  }
}

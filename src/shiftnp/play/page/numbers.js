// Numbers of the page: standardisation, mixtures of Gaussians and random draws. They follow the Python of
// shiftnp.regressor (box.py, standardise.py, mixture.py), so that both give the same predictions.

/** Side of the box in which the pretrained models have seen observations. */
export const SIDE = 3.4;
const LOW = 0.02;
const HIGH = 0.98;

/** Quantile of sorted values with linear interpolation, as numpy's. */
export function sortedQuantile(sorted, q) {
  const at = q * (sorted.length - 1);
  const i = Math.floor(at);
  const j = Math.min(i + 1, sorted.length - 1);
  return sorted[i] + (at - i) * (sorted[j] - sorted[i]);
}

/** Range of the data without a few remote points. */
export function extent(values) {
  if (!values.length) return [0, 0];
  const sorted = [...values].sort((a, b) => a - b);
  const low = sortedQuantile(sorted, LOW);
  const high = sortedQuantile(sorted, HIGH);
  if (low === high) return [sorted[0], sorted[sorted.length - 1]];
  const margin = (high - low) * 0.5 * (1 / (HIGH - LOW) - 1);
  return [low - margin, high + margin];
}

/** Centre and unit of one input such that the data fill the standard box. */
export function box(values) {
  const [low, high] = extent(values);
  return { centre: 0.5 * (low + high), unit: (high - low) / SIDE || 1 };
}

/** Mean and standard deviation by which outputs are standardised; the latter is positive. */
export function moments(y) {
  const n = y.length;
  if (!n) return { mean: 0, std: 1 };
  const mean = y.reduce((a, b) => a + b, 0) / n;
  const size = mean === 0 ? 1 : Math.abs(mean);
  if (n === 1) return { mean, std: size };
  const std = Math.sqrt(y.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1));
  const largest = y.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  return { mean, std: std > 4 * 2.3e-16 * largest ? std : 1e-6 * size };
}

/** The complementary error function over exp(-x^2), to seven digits: exp of a Chebyshev series in 2 / (2 + |x|). */
const SERIES = [
  -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
  0.17087277,
];

/** Probability that a standard normal variable is at most z; `bell` is exp(-z^2 / 2), if it is known. */
export function ndtr(z, bell = Math.exp(-0.5 * z * z)) {
  const t = 1 / (1 + (0.5 * Math.abs(z)) / Math.SQRT2);
  let sum = 0;
  for (let i = SERIES.length - 1; i >= 0; i--) sum = sum * t + SERIES[i];
  const tail = 0.5 * t * bell * Math.exp(sum);
  return z > 0 ? 1 - tail : tail;
}

/**
 * A mixture of k Gaussians at each of n targets, in three arrays of n * k numbers: weight, means, stds.
 */
export class Mixture {
  constructor(k, weight, means, stds) {
    this.k = k;
    this.n = weight.length / k;
    this.weight = weight;
    this.means = means;
    this.stds = stds;
  }

  /** The mixture in other units: y * std + mean. */
  rescaled({ mean, std }) {
    const means = Float64Array.from(this.means, (m) => m * std + mean);
    return new Mixture(this.k, this.weight, means, Float64Array.from(this.stds, (s) => s * std));
  }

  mean() {
    const out = new Float64Array(this.n);
    for (let i = 0; i < this.n * this.k; i++) out[Math.floor(i / this.k)] += this.weight[i] * this.means[i];
    return out;
  }

  std() {
    const mean = this.mean();
    const out = new Float64Array(this.n);
    for (let i = 0; i < this.n * this.k; i++) {
      const t = Math.floor(i / this.k);
      out[t] += this.weight[i] * (this.stds[i] ** 2 + (this.means[i] - mean[t]) ** 2);
    }
    return out.map(Math.sqrt);
  }

  /** Half of the central 68.3 % interval, which Regressor returns as standard deviation. */
  halfWidth() {
    const [low, high] = [-1, 1].map((z) => this.quantile(0.5 * (1 + z * 0.6826894921370859)));
    return high.map((v, t) => 0.5 * (v - low[t]));
  }

  /** Log density of value y at target t. */
  logDensity(t, y) {
    let density = 0;
    for (let i = t * this.k; i < (t + 1) * this.k; i++) {
      const z = (y - this.means[i]) / this.stds[i];
      density += (this.weight[i] / this.stds[i]) * Math.exp(-0.5 * z * z);
    }
    return Math.log(Math.max(density, 1e-300)) - 0.5 * Math.log(2 * Math.PI);
  }

  /** Quantiles of all targets, by Newton steps that are kept within a bracket and begin at the target before. */
  quantile(q) {
    const out = new Float64Array(this.n);
    const z = normalQuantile(q);
    const [mean, std] = [this.mean(), this.std()];
    for (let t = 0; t < this.n; t++) {
      const first = t * this.k;
      const last = first + this.k;
      let low = Infinity;
      let high = -Infinity;
      for (let i = first; i < last; i++) {
        const each = this.means[i] + z * this.stds[i];
        low = Math.min(low, each);
        high = Math.max(high, each);
      }
      const start = t ? out[t - 1] - mean[t - 1] : z * std[t];
      let y = Math.min(Math.max(mean[t] + start, low), high);
      const enough = 1e-7 * std[t];
      for (let step = 0; step < 60 && high - low > enough; step++) {
        let cdf = 0;
        let density = 0;
        for (let i = first; i < last; i++) {
          const d = (y - this.means[i]) / this.stds[i];
          const bell = Math.exp(-0.5 * d * d);
          cdf += this.weight[i] * ndtr(d, bell);
          density += (this.weight[i] / this.stds[i]) * bell;
        }
        if (cdf < q) low = y;
        else high = y;
        const next = y + ((q - cdf) / density) * Math.sqrt(2 * Math.PI);
        const inside = next > low && next < high;
        const small = Math.abs(next - y) < enough;
        y = inside ? next : 0.5 * (low + high);
        if (inside && small) break;
      }
      out[t] = y;
    }
    return out;
  }

  /** One draw at target t. */
  draw(t, random) {
    let u = random.uniform();
    let i = t * this.k;
    for (; i < (t + 1) * this.k - 1; i++) {
      u -= this.weight[i];
      if (u < 0) break;
    }
    return this.means[i] + this.stds[i] * random.normal();
  }
}

/** Quantile of the standard normal distribution, by bisection. */
export function normalQuantile(q) {
  let low = -10;
  let high = 10;
  while (high - low > 1e-12) {
    const middle = 0.5 * (low + high);
    if (ndtr(middle) < q) low = middle;
    else high = middle;
  }
  return 0.5 * (low + high);
}

/** Random numbers from a seed (mulberry32), so that a picture is the same whenever the data are. */
export class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  normal() {
    const r = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return r * Math.cos(2 * Math.PI * this.uniform());
  }

  /** The numbers 0 to n - 1 in random order. */
  permutation(n) {
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor(this.uniform() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

/** n numbers evenly spaced from a to b. */
export function linspace(a, b, n) {
  return Float64Array.from({ length: n }, (_, i) => a + ((b - a) * i) / (n - 1));
}

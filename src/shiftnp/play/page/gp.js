// The exact posterior of a Gaussian process, for comparison: exponentiated quadratic kernel, constant mean. Length-scale
// and noise are those of the largest marginal likelihood on a grid.

const LENGTHS = [0.1, 0.15, 0.22, 0.33, 0.5, 0.75, 1.1, 1.6, 2.4];
const NOISES = [1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.6];

/** Lower Cholesky factor of a symmetric positive definite matrix, rows one after the other. */
export function cholesky(a, n) {
  const l = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = a[i * n + j];
      for (let k = 0; k < j; k++) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = i === j ? Math.sqrt(Math.max(sum, 1e-12)) : sum / l[j * n + j];
    }
  }
  return l;
}

/** Solves L v = b. */
function forward(l, b, n) {
  const v = Float64Array.from(b);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) v[i] -= l[i * n + k] * v[k];
    v[i] /= l[i * n + i];
  }
  return v;
}

function kernel(a, b, length) {
  return Math.exp(-0.5 * ((a - b) / length) ** 2);
}

/** Factor of the covariance of the observations, and L^-1 y. */
function condition(x, y, length, noise) {
  const n = x.length;
  const a = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) a[i * n + j] = kernel(x[i], x[j], length) + (i === j ? noise : 0);
  }
  const l = cholesky(a, n);
  return { l, v: forward(l, y, n) };
}

/** Length-scale and variance of the noise with the largest marginal likelihood, for standardised outputs. */
export function fit(x, y) {
  let best = { length: 0.5, noise: 1e-2, score: -Infinity };
  for (const length of LENGTHS) {
    for (const noise of NOISES) {
      const { l, v } = condition(x, y, length, noise);
      let score = 0;
      for (let i = 0; i < x.length; i++) score -= 0.5 * v[i] ** 2 + Math.log(l[i * x.length + i]);
      if (score > best.score) best = { length, noise, score };
    }
  }
  return best;
}

/** Mean and standard deviation of new observations at targets, for standardised outputs. */
export function posterior(x, y, at, { length, noise }) {
  const n = x.length;
  const { l, v } = condition(x, y, length, noise);
  const mean = new Float64Array(at.length);
  const std = new Float64Array(at.length);
  for (let t = 0; t < at.length; t++) {
    const w = forward(l, x.map((value) => kernel(value, at[t], length)), n);
    let variance = 1 + noise;
    for (let i = 0; i < n; i++) {
      mean[t] += w[i] * v[i];
      variance -= w[i] ** 2;
    }
    std[t] = Math.sqrt(Math.max(variance, 1e-9));
  }
  return { mean, std };
}

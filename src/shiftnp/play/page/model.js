// The networks: ONNX files beside this page, run by onnxruntime-web on one thread of WebAssembly.

import * as ort from "./built/ort.wasm.bundle.min.mjs";
import { box, Mixture, moments, Random } from "./numbers.js";

ort.env.wasm.wasmPaths = { wasm: new URL("./built/ort-wasm-simd-threaded.wasm", import.meta.url).href };
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

/** Factors of the inputs that are compared by the likelihood of left-out points. */
export const FACTORS = Array.from({ length: 7 }, (_, i) => 3 ** ((i - 3) / 3));
const FOLDS = 4;
/** Left-out standard deviations are at least this fraction of that of all data. */
const FLOOR = 0.05;
/** Targets in one pass. */
const CHUNK = 400;

/** A network with dx inputs and one output. */
export class Model {
  static async load(name, dx) {
    const url = new URL(`./built/${name}.onnx`, import.meta.url);
    const session = await ort.InferenceSession.create(url.href, { graphOptimizationLevel: "all" });
    return new Model(session, dx);
  }

  constructor(session, dx) {
    this.session = session;
    this.dx = dx;
    this.queue = Promise.resolve();
  }

  /** One forward pass of b data sets; rows of xc, yc and xt are one after the other. A mask entry of 0 is padding. */
  async forward(b, xc, yc, xt, mask) {
    const nc = yc.length / b;
    const nt = xt.length / b / this.dx;
    const feeds = {
      xc: new ort.Tensor("float32", Float32Array.from(xc), [b, nc, this.dx]),
      yc: new ort.Tensor("float32", Float32Array.from(yc), [b, nc, 1]),
      xt: new ort.Tensor("float32", Float32Array.from(xt), [b, nt, this.dx]),
      mask: new ort.Tensor("bool", Uint8Array.from(mask), [b, nc]),
    };
    // A session runs one pass at a time.
    const turn = this.queue.then(() => this.session.run(feeds));
    this.queue = turn.catch(() => {});
    const out = await turn;
    if (!out.weight) return new Mixture(1, new Float32Array(b * nt).fill(1), out.mean.data, out.std.data);
    return new Mixture(out.weight.dims[2], out.weight.data, out.means.data, out.stds.data);
  }

  /**
   * Predictions of one data set in its own units: outputs are standardised, inputs are coordinates already.
   * x and xt are flat arrays of dx numbers a point.
   */
  async predict(x, y, xt) {
    const scale = moments(y);
    const none = !y.length;
    const xc = none ? new Array(this.dx).fill(0) : x;
    const yc = none ? [0] : y.map((v) => (v - scale.mean) / scale.std);
    const mask = new Uint8Array(yc.length).fill(none ? 0 : 1);
    const parts = [];
    for (let i = 0; i < xt.length; i += CHUNK * this.dx) {
      parts.push(await this.forward(1, xc, yc, xt.slice(i, i + CHUNK * this.dx), mask));
    }
    if (none) return flat(xt.length / this.dx);
    return join(parts).rescaled(scale);
  }

  /** The factor of the inputs under which left-out points have the largest likelihood; 1 with fewer than 6 points. */
  async chooseFactor(x, y) {
    const n = y.length;
    if (n < 6) return 1;
    const order = new Random(0).permutation(n);
    const size = Math.ceil(n / FOLDS);
    const all = moments(y).std;
    let best = { factor: 1, score: -Infinity };
    for (const factor of FACTORS) {
      const xc = [];
      const yc = [];
      const xt = [];
      const mask = [];
      const scales = [];
      for (let fold = 0; fold < FOLDS; fold++) {
        const out = order.slice(fold * size, (fold + 1) * size);
        const kept = order.filter((i) => !out.includes(i));
        const own = moments(kept.map((i) => y[i]));
        scales.push({ mean: own.mean, std: Math.max(own.std, FLOOR * all) });
        for (let i = 0; i < n; i++) {
          const j = i < kept.length ? kept[i] : -1;
          for (let d = 0; d < this.dx; d++) xc.push(j < 0 ? 0 : factor * x[j * this.dx + d]);
          yc.push(j < 0 ? 0 : (y[j] - scales[fold].mean) / scales[fold].std);
          mask.push(j < 0 ? 0 : 1);
        }
        for (let i = 0; i < size; i++) {
          const j = out[i] ?? order[0];
          for (let d = 0; d < this.dx; d++) xt.push(factor * x[j * this.dx + d]);
        }
      }
      const found = await this.forward(FOLDS, xc, yc, xt, mask);
      let score = 0;
      for (let fold = 0; fold < FOLDS; fold++) {
        const { mean, std } = scales[fold];
        order.slice(fold * size, (fold + 1) * size).forEach((j, i) => {
          score += found.logDensity(fold * size + i, (y[j] - mean) / std) - Math.log(std);
        });
      }
      if (score > best.score) best = { factor, score };
    }
    return best.factor;
  }

  /**
   * Functions drawn jointly at targets, noise included: in a few steps, whose values are added to the observations of
   * the next ones. Targets of one step are independent of each other given those before, which is an approximation.
   */
  async sample(x, y, xt, functions, steps, seed, still = () => true) {
    const scale = moments(y);
    const random = new Random(seed);
    const n = xt.length / this.dx;
    const values = Array.from({ length: functions }, () => new Float64Array(n));
    const orders = values.map(() => spread(n, random));
    const xs = values.map(() => (y.length ? [...x] : new Array(this.dx).fill(0)));
    const ys = values.map(() => (y.length ? y.map((v) => (v - scale.mean) / scale.std) : [0]));
    const first = y.length ? 1 : 0; // the point that stands for no data is masked out
    for (let step = 0, done = 0; step < steps; step++) {
      const end = step === steps - 1 ? n : Math.round(n * 2 ** (step + 1 - steps));
      const some = orders.map((order) => order.slice(done, Math.max(end, done + 1)));
      done = Math.max(end, done + 1);
      const at = some.flatMap((order) => order.flatMap((i) => [...xt.slice(i * this.dx, (i + 1) * this.dx)]));
      const mask = ys.flatMap((row) => row.map((_, i) => (i === 0 ? first : 1)));
      const found = await this.forward(functions, xs.flat(), ys.flat(), at, mask);
      if (!still()) return null;
      some.forEach((order, f) =>
        order.forEach((i, j) => {
          const drawn = found.draw(f * order.length + j, random);
          values[f][i] = drawn * scale.std + scale.mean;
          ys[f].push(drawn);
          xs[f].push(...xt.slice(i * this.dx, (i + 1) * this.dx));
        }),
      );
    }
    return values;
  }
}

/** The prediction without data: mean 0 and standard deviation 1, as that of Regressor. */
function flat(n) {
  return new Mixture(1, new Float64Array(n).fill(1), new Float64Array(n), new Float64Array(n).fill(1));
}

function join(parts) {
  if (parts.length === 1) return parts[0];
  const all = (name) => Float64Array.from(parts.flatMap((part) => [...part[name]]));
  return new Mixture(parts[0].k, all("weight"), all("means"), all("stds"));
}

/** An order of n neighbouring targets in which early ones are spread evenly: bits of the number in reverse, rotated. */
function spread(n, random) {
  const bits = Math.ceil(Math.log2(Math.max(n, 2)));
  const turn = Math.floor(random.uniform() * n);
  const order = [];
  for (let i = 0; i < 2 ** bits; i++) {
    let reversed = 0;
    for (let bit = 0; bit < bits; bit++) reversed |= ((i >> bit) & 1) << (bits - 1 - bit);
    if (reversed < n) order.push((reversed + turn) % n);
  }
  return order;
}

/** The factor by which Regressor(scales=[...]) has the same coordinates as (x - centre) / unit of this page. */
export function regressorFactor(values, unit) {
  return box(values).unit / unit;
}

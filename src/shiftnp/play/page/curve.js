// The 1-D view: points, the TE-TNP's mean with 50 % and 90 % bands, joint samples, a plain TNP and an exact GP.

import * as gp from "./gp.js";
import { EXAMPLES } from "./examples.js";
import { regressorFactor } from "./model.js";
import { linspace, moments, Random } from "./numbers.js";
import { colour, Points, repeated, sharp } from "./points.js";

/** Ends of the axes. One unit of x is one unit of the networks' coordinates, times the scale. */
export const X = [-4, 4];
export const Y = [-3, 3];
export const TARGETS = 400;
/** Joint samples are drawn at every 6th target, in 6 steps, when the data have rested for a moment. */
const SAMPLED = 67;
const STEPS = 6;
const REST = 200;

export class Curve {
  constructor(root, models) {
    this.models = models;
    this.canvas = root.querySelector("canvas");
    this.about = root.querySelector(".about");
    this.root = root;
    this.xt = linspace(...X, TARGETS);
    this.samples = null;
    this.numbers = null;
    this.milliseconds = NaN;
    this.step = 0.05;
    this.random = new Random(1);
    this.points = new Points(this.canvas, this);
    this.update = repeated(() => this.compute());
    for (const input of root.querySelectorAll("input")) input.addEventListener("input", () => this.changed());
    for (const button of root.querySelectorAll("[data-example]")) {
      button.addEventListener("click", () => this.example(button.dataset.example));
    }
    const actions = {
      undo: () => this.points.undo(),
      clear: () => this.points.set([]),
      python: () => this.copy(),
      auto: () => this.findScale(),
    };
    for (const button of root.querySelectorAll("[data-action]")) {
      button.addEventListener("click", actions[button.dataset.action]);
    }
  }

  input(name) {
    return this.root.querySelector(`[name=${name}]`);
  }

  value(name) {
    return Number(this.input(name).value);
  }

  get factor() {
    return 3 ** (this.value("scale") / 3);
  }

  // --- what Points asks for

  moveAll() {
    return this.input("all").checked;
  }

  place(px, py) {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    return [X[0] + ((X[1] - X[0]) * px) / w, Y[1] - ((Y[1] - Y[0]) * py) / h];
  }

  pixel(point) {
    this.size = [this.canvas.clientWidth, this.canvas.clientHeight];
    return this.toPixel(...this.observed(point));
  }

  toPixel(x, y) {
    const [w, h] = this.size;
    return [((x - X[0]) / (X[1] - X[0])) * w, ((Y[1] - y) / (Y[1] - Y[0])) * h];
  }

  /** A point as it is observed: shifted, and with noise. */
  observed({ x, y, noise }) {
    return [x + this.value("shift"), y + this.value("noise") * noise];
  }

  fresh([x, y]) {
    const noise = this.random.normal();
    return { x: x - this.value("shift"), y: y - this.value("noise") * noise, noise };
  }

  move(point, dx, dy) {
    point.x += dx;
    point.y += dy;
  }

  changed() {
    this.samples = null;
    clearTimeout(this.rest);
    return this.update();
  }

  // --- predictions

  /** Observations as arrays of inputs and outputs. */
  data() {
    const rows = this.points.list.map((point) => this.observed(point));
    return { x: rows.map((row) => row[0]), y: rows.map((row) => row[1]) };
  }

  async compute() {
    const start = performance.now();
    const { x, y } = this.data();
    const { factor } = this;
    const at = Array.from(this.xt, (v) => v * factor);
    const found = await this.models.curve.predict(x.map((v) => v * factor), y, at);
    const numbers = { x: this.xt, factor, mean: found.mean() };
    for (const [name, q] of [["q05", 0.05], ["q25", 0.25], ["q75", 0.75], ["q95", 0.95]]) {
      numbers[name] = found.quantile(q);
    }
    this.numbers = numbers;
    this.milliseconds = performance.now() - start;
    if (this.input("plain").checked && this.models.plain) {
      numbers.plain = (await this.models.plain.predict(x, y, Array.from(this.xt))).mean();
    }
    if (this.input("gp").checked && y.length) {
      const scale = moments(y);
      const z = y.map((v) => (v - scale.mean) / scale.std);
      const exact = gp.posterior(x, z, this.xt, gp.fit(x, z));
      numbers.gp = exact.mean.map((v) => v * scale.std + scale.mean);
      numbers.gpStd = exact.std.map((v) => v * scale.std);
    }
    this.draw();
    this.say();
    clearTimeout(this.rest);
    if (this.value("functions")) this.rest = setTimeout(() => this.sample(), REST);
  }

  async sample() {
    const { x, y } = this.data();
    const { factor, numbers } = this;
    const every = (TARGETS - 1) / (SAMPLED - 1);
    const xt = Array.from({ length: SAMPLED }, (_, i) => this.xt[Math.round(i * every)]);
    const scaled = [x, xt].map((values) => values.map((v) => v * factor));
    const still = () => numbers === this.numbers;
    const drawn = await this.models.curve.sample(scaled[0], y, scaled[1], this.value("functions"), STEPS, 7, still);
    if (!drawn || !still()) return;
    this.samples = { x: xt, functions: drawn };
    this.draw();
  }

  async findScale() {
    const { x, y } = this.data();
    const factor = await this.models.curve.chooseFactor(x, y);
    this.input("scale").value = (3 * Math.log(factor)) / Math.log(3);
    await this.changed();
  }

  async example(name) {
    const { points, text } = EXAMPLES[name](new Random(3));
    this.input("shift").value = 0;
    this.points.set(points.map(([x, y]) => ({ x, y, noise: this.random.normal() })));
    await this.findScale();
    this.about.textContent = text;
  }

  // --- output

  say() {
    for (const label of this.root.querySelectorAll("label:has(output)")) {
      const input = label.querySelector("input");
      const shown = input.name === "scale" ? `×${this.factor.toFixed(2)}` : input.value;
      label.querySelector("output").textContent = shown;
    }
    const n = this.points.list.length;
    const chosen = this.points.list[this.points.chosen];
    const where = chosen ? `; chosen: ${this.observed(chosen).map((v) => v.toFixed(2)).join(", ")}` : "";
    this.about.textContent = `${n} point${n === 1 ? "" : "s"}${where}; predicted in ${this.milliseconds.toFixed(0)} ms`;
  }

  line(g, x, y, style, width = 1, dash = []) {
    g.beginPath();
    for (let i = 0; i < x.length; i++) g.lineTo(...this.toPixel(x[i], y[i]));
    [g.strokeStyle, g.lineWidth] = [style, width];
    g.setLineDash(dash);
    g.stroke();
    g.setLineDash([]);
  }

  band(g, low, high, style) {
    const x = this.xt;
    g.beginPath();
    for (let i = 0; i < x.length; i++) g.lineTo(...this.toPixel(x[i], high[i]));
    for (let i = x.length - 1; i >= 0; i--) g.lineTo(...this.toPixel(x[i], low[i]));
    g.fillStyle = style;
    g.fill();
  }

  draw() {
    const g = sharp(this.canvas);
    const { numbers, xt } = this;
    this.size = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!numbers) return;
    this.axes(g);
    this.band(g, numbers.q05, numbers.q95, colour("most"));
    this.band(g, numbers.q25, numbers.q75, colour("half"));
    for (const f of this.samples?.functions ?? []) this.line(g, this.samples.x, f, colour("draw"));
    if (numbers.plain) this.line(g, xt, numbers.plain, colour("plain"), 1.5);
    if (numbers.gp) {
      this.line(g, xt, numbers.gp, colour("gp"), 2, [6, 4]);
      for (const sign of [-1, 1]) {
        const edge = numbers.gp.map((v, i) => v + sign * 1.6449 * numbers.gpStd[i]);
        this.line(g, xt, edge, colour("gp"), 1, [2, 3]);
      }
    }
    this.line(g, xt, numbers.mean, colour("mean"), 2.5);
    this.points.list.forEach((point, i) => {
      const chosen = i === this.points.chosen;
      g.beginPath();
      g.arc(...this.pixel(point), chosen ? 7 : 4.5, 0, 2 * Math.PI);
      g.fillStyle = colour(chosen ? "chosen" : "point");
      g.fill();
    });
  }

  axes(g) {
    [g.strokeStyle, g.fillStyle, g.lineWidth] = [colour("line"), colour("soft"), 1];
    g.font = "12px system-ui, sans-serif";
    g.beginPath();
    for (let x = Math.ceil(X[0]) + 1; x < X[1]; x++) {
      const [px] = this.toPixel(x, 0);
      g.moveTo(px, 0);
      g.lineTo(px, this.canvas.clientHeight);
      g.fillText(String(x), px + 3, this.canvas.clientHeight - 5);
    }
    for (let y = Math.ceil(Y[0]) + 1; y < Y[1]; y++) {
      const [, py] = this.toPixel(0, y);
      g.moveTo(0, py);
      g.lineTo(this.canvas.clientWidth, py);
      g.fillText(String(y), 4, py - 3);
    }
    g.stroke();
  }

  /** Python that gives the numbers of this picture. */
  python() {
    const { x, y } = this.data();
    const factor = x.length ? regressorFactor(x, 1 / this.factor) : 1;
    return [
      "import numpy as np",
      "from shiftnp import Regressor",
      "",
      `x = np.array([${x.join(", ")}])`,
      `y = np.array([${y.join(", ")}])`,
      "# The scale of x is that of the playground; Regressor() chooses it by cross-validation.",
      `model = Regressor(scales=[${factor}], calibrate=False, gp=False).fit(x[:, None], y)`,
      `grid = np.linspace(${X[0]}, ${X[1]}, ${TARGETS})[:, None]`,
      "mean = model.predict(grid)",
      "bands = model.predict_quantiles(grid, (0.05, 0.25, 0.75, 0.95))",
      "",
    ].join("\n");
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.python());
      this.about.textContent = "Copied.";
    } catch {
      window.prompt("Copy this:", this.python());
    }
  }
}

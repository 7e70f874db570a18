// The 2-D view: points with values on a square, and colour maps of mean and standard deviation.

import { MAPS } from "./examples.js";
import { linspace, Random } from "./numbers.js";
import { colour, Points, repeated, sharp } from "./points.js";

/** The square. One unit of x is one unit of the network's coordinates, times the scale. */
export const SQUARE = [-2, 2];
/** Pixels of a colour map along a side: while points move, and when they rest. */
const COARSE = 20;
const FINE = 48;
const REST = 150;

/** Colours from low to high, of equal steps in lightness. */
const MEAN = ["#2b1a5a", "#30507e", "#31858a", "#58b67c", "#b4d656", "#fde725"];
const STD = ["#10131c", "#3b1c5a", "#7d2a6c", "#bb3f63", "#ec7150", "#fcb97d", "#fcfdbf"];

/** The colour at t in [0, 1] of a list of colours, as red, green and blue. */
export function ramp(colours, t) {
  const at = Math.min(Math.max(t, 0), 1) * (colours.length - 1);
  const i = Math.min(Math.floor(at), colours.length - 2);
  return [1, 3, 5].map((c) => {
    const [a, b] = [i, i + 1].map((j) => parseInt(colours[j].slice(c, c + 2), 16));
    return Math.round(a + (at - i) * (b - a));
  });
}

/** A picture of n x n values, the first row at the bottom, scaled to a canvas. */
export function paint(g, canvas, values, n, low, high, colours) {
  const small = new OffscreenCanvas(n, n);
  const image = new ImageData(n, n);
  for (let i = 0; i < n * n; i++) {
    const row = n - 1 - Math.floor(i / n);
    const rgb = ramp(colours, (values[i] - low) / (high - low || 1));
    image.data.set([...rgb, 255], 4 * (row * n + (i % n)));
  }
  small.getContext("2d").putImageData(image, 0, 0);
  g.imageSmoothingEnabled = true;
  g.drawImage(small, 0, 0, canvas.clientWidth, canvas.clientHeight);
}

export class HeatMap {
  constructor(root, models) {
    this.models = models;
    this.root = root;
    this.canvas = root.querySelector("canvas.mean");
    this.other = root.querySelector("canvas.std");
    this.about = root.querySelector(".about");
    this.step = 0.04;
    this.size = COARSE;
    this.numbers = null;
    this.points = new Points(this.canvas, this);
    this.update = repeated(() => this.compute());
    this.input("scale").addEventListener("input", () => this.changed());
    this.input("value").addEventListener("input", () => this.setValue(this.value("value")));
    for (const button of root.querySelectorAll("[data-example]")) {
      button.addEventListener("click", () => this.example(button.dataset.example));
    }
    const actions = {
      undo: () => this.points.undo(),
      clear: () => this.points.set([]),
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
    const [a, b] = SQUARE;
    return [a + ((b - a) * px) / this.canvas.clientWidth, b - ((b - a) * py) / this.canvas.clientHeight];
  }

  pixel({ x }) {
    const [a, b] = SQUARE;
    return [((x[0] - a) / (b - a)) * this.canvas.clientWidth, ((b - x[1]) / (b - a)) * this.canvas.clientHeight];
  }

  fresh(x) {
    return { x, y: this.value("value") };
  }

  move(point, dx, dy) {
    point.x = [point.x[0] + dx, point.x[1] + dy];
  }

  changed() {
    this.size = COARSE;
    clearTimeout(this.rest);
    return this.update();
  }

  key(name) {
    const step = { "+": 0.1, "=": 0.1, "-": -0.1 }[name];
    const chosen = this.points.list[this.points.chosen];
    if (!step || !chosen) return false;
    this.points.remember();
    this.setValue(Math.min(2, Math.max(-2, chosen.y + step)));
    return true;
  }

  /** Sets the value of the chosen point, and of the next ones. */
  setValue(y) {
    const chosen = this.points.list[this.points.chosen];
    if (chosen) chosen.y = y;
    this.input("value").value = y;
    this.changed();
  }

  // --- predictions

  async compute() {
    const start = performance.now();
    const { factor, size } = this;
    const x = this.points.list.flatMap((point) => point.x.map((v) => v * factor));
    const y = this.points.list.map((point) => point.y);
    const axis = linspace(...SQUARE, size);
    const xt = [];
    for (const b of axis) for (const a of axis) xt.push(a * factor, b * factor);
    const found = await this.models.map.predict(x, y, xt);
    this.numbers = { axis, factor, mean: found.mean(), std: found.halfWidth() };
    this.milliseconds = performance.now() - start;
    this.draw();
    this.say();
    if (size === COARSE) {
      this.rest = setTimeout(() => {
        this.size = FINE;
        this.update();
      }, REST);
    }
  }

  async findScale() {
    const x = this.points.list.flatMap((point) => point.x);
    const factor = await this.models.map.chooseFactor(x, this.points.list.map((point) => point.y));
    this.input("scale").value = (3 * Math.log(factor)) / Math.log(3);
    await this.changed();
  }

  async example(name) {
    const { points, text } = MAPS[name](new Random(5));
    this.points.set(points.map(([a, b, y]) => ({ x: [a, b], y })));
    await this.findScale();
    this.about.textContent = text;
  }

  // --- output

  say() {
    const chosen = this.points.list[this.points.chosen];
    if (chosen) this.input("value").value = chosen.y;
    for (const label of this.root.querySelectorAll("label:has(output)")) {
      const input = label.querySelector("input");
      const shown = input.name === "scale" ? `×${this.factor.toFixed(2)}` : Number(input.value).toFixed(2);
      label.querySelector("output").textContent = shown;
    }
    const n = this.points.list.length;
    const where = chosen ? `; chosen: ${chosen.x.map((v) => v.toFixed(2)).join(", ")}` : "";
    this.about.textContent = `${n} point${n === 1 ? "" : "s"}${where}; predicted in ${this.milliseconds.toFixed(0)} ms`;
  }

  draw() {
    if (!this.numbers) return;
    const { mean, std, axis } = this.numbers;
    const n = axis.length;
    const shown = [
      [this.canvas, mean, Math.min(...mean), Math.max(...mean), MEAN],
      [this.other, std, 0, Math.max(...std), STD],
    ];
    for (const [canvas, values, low, high, colours] of shown) {
      const g = sharp(canvas);
      paint(g, canvas, values, n, low, high, colours);
      canvas.closest("figure").querySelector(".range").textContent = `${low.toFixed(2)} to ${high.toFixed(2)}`;
      this.points.list.forEach((point, i) => {
        const value = (point.y - low) / (high - low || 1);
        g.beginPath();
        g.arc(...this.pixel(point), i === this.points.chosen ? 8 : 5.5, 0, 2 * Math.PI);
        g.fillStyle = canvas === this.canvas ? `rgb(${ramp(MEAN, value)})` : "#00000000";
        g.fill();
        [g.lineWidth, g.strokeStyle] = [2, i === this.points.chosen ? colour("chosen") : "#ffffff"];
        g.stroke();
      });
    }
  }
}

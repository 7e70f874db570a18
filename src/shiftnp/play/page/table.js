// A CSV of the user: columns chosen by menus, predicted in the page, with the result as a download.

import { paint } from "./map.js";
import { box, linspace, Random } from "./numbers.js";
import { colour, sharp } from "./points.js";

/** Rows that a prediction uses, at most; with more, so many are drawn at random. */
const MOST = 400;
/** Targets of a prediction: along one input, and along each of two. */
const ALONG = 400;
const SIDE_OF_MAP = 40;

/** Rows of a text with a header; the separator is the one that the header has most of. Quotes are understood. */
export function parse(text) {
  const head = text.split(/\r?\n/, 1)[0];
  const separator = [",", ";", "\t"].sort((a, b) => head.split(b).length - head.split(a).length)[0];
  const rows = [];
  let row = [];
  let field = "";
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === '"' && text[i + 1] === '"') field += text[++i];
      else if (c === '"') quoted = false;
      else field += c;
    } else if (c === '"') quoted = true;
    else if (c === separator) [row, field] = [[...row, field], ""];
    else if (c === "\n") {
      rows.push([...row, field.replace(/\r$/, "")]);
      [row, field] = [[], ""];
    } else field += c;
  }
  if (field || row.length) rows.push([...row, field]);
  const [names, ...values] = rows.filter((r) => r.length > 1 || r[0] !== "");
  return { names: (names ?? []).map((name) => name.trim()), rows: values, separator };
}

/** A cell as a number: dates become days since 1970, a decimal comma is understood; NaN if it is neither. */
export function number(cell, separator) {
  const text = (cell ?? "").trim();
  if (text === "") return NaN;
  const plain = Number(separator === ";" ? text.replace(",", ".") : text);
  if (!Number.isNaN(plain)) return plain;
  return /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text.length === 10 ? `${text}T00:00Z` : text) / 86_400_000 : NaN;
}

export class TableView {
  constructor(root, models) {
    this.root = root;
    this.models = models;
    this.canvas = root.querySelector("canvas");
    this.about = root.querySelector(".about");
    this.columns = root.querySelector(".columns");
    const drop = root.querySelector(".drop");
    drop.querySelector("input").addEventListener("change", (event) => this.open(event.target.files[0]));
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.open(event.dataTransfer.files[0]);
    });
    root.querySelector("[data-action=predict]").addEventListener("click", () => this.predict());
    root.querySelector("[data-action=download]").addEventListener("click", () => this.download());
  }

  async open(file) {
    if (file) this.read(await file.text(), file.name);
  }

  read(text, name) {
    this.table = parse(text);
    this.name = name;
    const { names, rows, separator } = this.table;
    const usable = names.filter((_, j) => rows.some((row) => !Number.isNaN(number(row[j], separator))));
    if (usable.length < 2) {
      this.about.textContent = `${name} needs a header and at least two columns of numbers or dates.`;
      return;
    }
    const fill = (menu, options, chosen) => {
      const select = this.columns.querySelector(`[name=${menu}]`);
      select.replaceChildren(...options.map((option) => new Option(option || "none", option)));
      select.value = chosen;
    };
    const two = usable.length > 2;
    fill("x0", usable, usable[0]);
    fill("x1", ["", ...usable], two ? usable[1] : "");
    fill("y", usable, usable[two ? 2 : 1]);
    this.columns.hidden = false;
    this.about.textContent = `${name}: ${rows.length} rows.`;
  }

  async predict() {
    const { names, rows, separator } = this.table;
    const chosen = (menu) => this.columns.querySelector(`[name=${menu}]`).value;
    const inputs = [chosen("x0"), chosen("x1")].filter((name) => name);
    const column = (name) => rows.map((row) => number(row[names.indexOf(name)], separator));
    const raw = inputs.map(column);
    const y = column(chosen("y"));
    if (new Set([...inputs, chosen("y")]).size <= inputs.length) {
      this.about.textContent = "Choose a different column for each input and the output.";
      return;
    }
    let kept = y.map((_, i) => i).filter((i) => [y, ...raw].every((values) => Number.isFinite(values[i])));
    const all = kept.length;
    if (all > MOST) {
      const order = new Random(0).permutation(all).slice(0, MOST);
      kept = order.sort((a, b) => a - b).map((i) => kept[i]);
    }
    if (!kept.length) {
      this.about.textContent = "No row has numbers in all of these columns.";
      return;
    }
    this.about.textContent = "Predicting …";
    const boxes = raw.map((values) => box(kept.map((i) => values[i])));
    const x = kept.flatMap((i) => boxes.map(({ centre, unit }, d) => (raw[d][i] - centre) / unit));
    const values = kept.map((i) => y[i]);
    const model = inputs.length === 1 ? this.models.curve : this.models.map;
    const factor = await model.chooseFactor(x, values);
    const ends = raw.map((column_) => {
      const some = kept.map((i) => column_[i]);
      return [some.reduce((a, b) => Math.min(a, b)), some.reduce((a, b) => Math.max(a, b))];
    });
    const axes = ends.map(([low, high]) => linspace(low, high, inputs.length === 1 ? ALONG : SIDE_OF_MAP));
    const grid = inputs.length === 1 ? [...axes[0]].map((a) => [a]) : [...axes[1]].flatMap((b) => [...axes[0]].map((a) => [a, b]));
    const xt = grid.flatMap((at) => at.map((v, d) => ((v - boxes[d].centre) / boxes[d].unit) * factor));
    const found = await model.predict(x.map((v) => v * factor), values, xt);
    const [mean, std, q05, q95] = [found.mean(), found.halfWidth(), found.quantile(0.05), found.quantile(0.95)];
    this.result = { inputs, output: chosen("y"), grid, mean, std, q05, q95, factor };
    this.observed = { x: kept.map((i) => raw.map((column_) => column_[i])), y: values, ends };
    const dropped = all > MOST ? `; ${MOST} of ${all} rows, drawn at random, are used` : "";
    this.about.textContent = `${kept.length} observations, scale ×${factor.toFixed(2)}${dropped}.`;
    this.root.querySelector("[data-action=download]").disabled = false;
    this.canvas.hidden = false;
    this.draw();
  }

  draw() {
    if (!this.result) return;
    const { grid, mean, q05, q95, inputs } = this.result;
    const { x, y, ends } = this.observed;
    const g = sharp(this.canvas);
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const across = (v) => 8 + ((v - ends[0][0]) / (ends[0][1] - ends[0][0] || 1)) * (w - 16);
    if (inputs.length === 2) {
      const up = (v) => h - ((v - ends[1][0]) / (ends[1][1] - ends[1][0] || 1)) * h;
      const [low, high] = [Math.min(...mean), Math.max(...mean)];
      paint(g, this.canvas, mean, SIDE_OF_MAP, low, high, ["#2b1a5a", "#31858a", "#fde725"]);
      g.strokeStyle = "#ffffff";
      for (const [a, b] of x) {
        g.beginPath();
        g.arc(((a - ends[0][0]) / (ends[0][1] - ends[0][0] || 1)) * w, up(b), 3, 0, 2 * Math.PI);
        g.stroke();
      }
      return;
    }
    const low = Math.min(...q05, ...y);
    const high = Math.max(...q95, ...y);
    const up = (v) => h - 8 - ((v - low) / (high - low || 1)) * (h - 16);
    g.beginPath();
    for (let i = 0; i < grid.length; i++) g.lineTo(across(grid[i][0]), up(q95[i]));
    for (let i = grid.length - 1; i >= 0; i--) g.lineTo(across(grid[i][0]), up(q05[i]));
    g.fillStyle = colour("most");
    g.fill();
    g.beginPath();
    for (let i = 0; i < grid.length; i++) g.lineTo(across(grid[i][0]), up(mean[i]));
    [g.strokeStyle, g.lineWidth, g.fillStyle] = [colour("mean"), 2, colour("point")];
    g.stroke();
    x.forEach(([a], i) => {
      g.beginPath();
      g.arc(across(a), up(y[i]), 2.5, 0, 2 * Math.PI);
      g.fill();
    });
  }

  /** The result as CSV: inputs, mean, standard deviation and the 5 % and 95 % quantiles. */
  csv() {
    const { inputs, grid, mean, std, q05, q95 } = this.result;
    const quote = (name) => (/[",\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
    const lines = grid.map((at, i) => [...at, mean[i], std[i], q05[i], q95[i]].join(","));
    return [[...inputs.map(quote), "mean", "std", "q0.05", "q0.95"].join(","), ...lines, ""].join("\n");
  }

  download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    link.download = `${this.name.replace(/\.[^.]*$/, "")}-predicted.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

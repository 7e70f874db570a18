// Starts the page: loads the networks and connects tabs and views.

import { Curve, TARGETS } from "./curve.js";
import { HeatMap } from "./map.js";
import { Model } from "./model.js";
import { Random } from "./numbers.js";
import { TableView } from "./table.js";

const status = document.getElementById("status");
const models = {};
const views = {};

/** Loads the network of the map when it is first needed. */
async function needMap() {
  if (models.map) return;
  status.textContent = "Loading the model for two inputs …";
  models.map = await Model.load("2d", 2);
  status.textContent = "";
}

async function show(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (name !== "curve") await needMap();
  if (name === "map" && !views.map.numbers) await views.map.example("bumps");
  else views[name].draw();
}

/**
 * Milliseconds of each of some frames of the curve: the prediction with its bands, and drawing. While points move,
 * joint samples wait.
 */
async function measure(points, frames) {
  const { curve } = views;
  const random = new Random(11);
  curve.input("functions").value = 0;
  curve.points.set(
    Array.from({ length: points }, () => {
      const x = 4 * random.uniform() - 2;
      return { x, y: Math.sin(3 * x) + 0.2 * random.normal(), noise: 0 };
    }),
  );
  await curve.update();
  const times = [];
  for (let i = 0; i < frames; i++) {
    curve.points.list.forEach((point) => (point.x += 0.01));
    const start = performance.now();
    await curve.compute();
    times.push(performance.now() - start);
  }
  return { points, targets: TARGETS, times };
}

async function start() {
  try {
    models.curve = await Model.load("1d", 1);
    models.plain = await Model.load("plain", 1);
  } catch (error) {
    status.textContent = `The networks cannot be loaded (${error.message}): build the page with "make play".`;
    throw error;
  }
  status.textContent = "";
  for (const [name, View] of [["curve", Curve], ["map", HeatMap], ["table", TableView]]) {
    views[name] = new View(document.getElementById(name), models);
  }
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => show(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  const redraw = () => Object.values(views).forEach((view) => view.draw());
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  await views.curve.example("sine");
}

/** For the console and for tests: the views with their numbers, and the time of a frame. */
window.shiftnp = { views, models, measure, show, ready: start() };

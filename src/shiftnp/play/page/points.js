// A set of points that a person edits with pointer and keyboard: what the curve and the map have in common.

/** Distance in pixels within which a pointer takes hold of a point. */
const NEAR = 14;
const UNDO = 200;

/**
 * Points with undo. A view gives it a canvas, `place(px, py)` (the point at a pixel), `pixel(point)` (its inverse),
 * `move(point, dx, dy)` and `fresh(place)` (a new point), and is told of changes by `changed()`.
 */
export class Points {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.list = [];
    this.chosen = -1;
    this.past = [];
    this.drag = null;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.pull(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (this.drag = null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Remembers the points as they are, for undo. */
  remember() {
    this.past.push(JSON.stringify(this.list));
    if (this.past.length > UNDO) this.past.shift();
  }

  undo() {
    if (!this.past.length) return;
    this.list = JSON.parse(this.past.pop());
    this.chosen = Math.min(this.chosen, this.list.length - 1);
    this.view.changed();
  }

  set(list) {
    this.remember();
    this.list = list;
    this.chosen = -1;
    this.view.changed();
  }

  add(place) {
    this.remember();
    this.list.push(this.view.fresh(place));
    this.chosen = this.list.length - 1;
    this.view.changed();
  }

  remove() {
    if (this.chosen < 0) return;
    this.remember();
    this.list.splice(this.chosen, 1);
    this.chosen = Math.min(this.chosen, this.list.length - 1);
    this.view.changed();
  }

  press(event) {
    const at = [event.offsetX, event.offsetY];
    this.canvas.focus();
    this.canvas.setPointerCapture?.(event.pointerId);
    const all = event.shiftKey || this.view.moveAll();
    let nearest = -1;
    let least = NEAR;
    this.list.forEach((point, i) => {
      const [px, py] = this.view.pixel(point);
      const d = Math.hypot(px - at[0], py - at[1]);
      if (d < least) [least, nearest] = [d, i];
    });
    if (all) this.remember();
    else if (nearest < 0) this.add(this.view.place(...at));
    else {
      this.remember();
      this.chosen = nearest;
      this.view.changed();
    }
    this.drag = { all, at };
    event.preventDefault();
  }

  pull(event) {
    if (!this.drag) return;
    const [x0, y0] = this.view.place(...this.drag.at);
    const [x1, y1] = this.view.place(event.offsetX, event.offsetY);
    this.shift(x1 - x0, y1 - y0, this.drag.all);
    this.drag.at = [event.offsetX, event.offsetY];
  }

  /** Moves all points, or the chosen one. */
  shift(dx, dy, all) {
    if (all) this.list.forEach((point) => this.view.move(point, dx, dy, true));
    else if (this.list[this.chosen]) this.view.move(this.list[this.chosen], dx, dy, false);
    this.view.changed();
  }

  key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const n = this.list.length;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (steps[name]) {
      this.remember();
      const [dx, dy] = steps[name].map((s) => s * this.view.step);
      this.shift(dx, dy, event.shiftKey || this.view.moveAll());
    } else if (name === "n" && n) this.choose((this.chosen + 1) % n);
    else if (name === "p" && n) this.choose((this.chosen - 1 + n) % n);
    else if (name === "Delete" || name === "Backspace") this.remove();
    else if (name === "Enter") this.add(this.view.place(this.canvas.clientWidth / 2, this.canvas.clientHeight / 2));
    else if (name === "u") this.undo();
    else if (!this.view.key?.(name)) return;
    event.preventDefault();
  }

  choose(i) {
    this.chosen = i;
    this.view.changed();
  }
}

/** Runs `work` again and again while something has changed, one run at a time. */
export function repeated(work) {
  let running = null;
  let again = false;
  return function request() {
    again = true;
    running ??= (async () => {
      try {
        while (again) {
          again = false;
          await new Promise((next) => requestAnimationFrame(next));
          await work();
        }
      } finally {
        running = null;
      }
    })();
    return running;
  };
}

/** A canvas' context for drawing in CSS pixels, sharp on any screen. */
export function sharp(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return g;
}

/** A colour of the style sheet, which knows of light and dark. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

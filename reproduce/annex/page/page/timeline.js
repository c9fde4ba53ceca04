// A pipeline timeline on a canvas: only what is in sight is drawn, so that 64 ranks x 512 microbatches stay smooth.
import { button, element } from "./elements.js";

/** @type {Record<string, string>} */
export const COLORS = {
  F: "#0072b2",
  B: "#009e73",
  I: "#56b4e9",
  W: "#e69f00",
  exchange: "#999999",
  data_parallel: "#cc79a7",
  optimizer: "#d55e00",
  host: "#f0e442",
  held: "#8a5fb0",
};
/** @type {Record<string, string>} */
export const NAMES = {
  F: "forward",
  B: "backward",
  I: "input gradient",
  W: "weight gradient",
  exchange: "messages",
  data_parallel: "gradient reduction",
  optimizer: "optimizer",
  host: "host",
  held: "activations held",
};
const LEFT = 46;
const ROW = matchMedia("(pointer: coarse)").matches ? 30 : 22; // with its stash 44 pixels for a finger
const TOP = 22;
const STASH = 14; // under its row, a gap above the next one
const GAP = 4;
const TAP = 6; // pixels that a finger may move

/** @typedef {(rank: number, place: number, time: number) => void} OnPick which pass of a rank is at a time, or next */

export class TimelineView {
  /**
   * @param {HTMLElement} parent
   * @param {string} title
   * @param {TimelineAnswer} data
   * @param {OnPick} onPick
   * @param {(from: TimelineView, begin: number, end: number) => void} onRange shares of the iteration in sight
   */
  constructor(parent, title, data, onPick, onRange) {
    this.data = data;
    this.onPick = onPick;
    this.onRange = onRange;
    this.begin = 0;
    this.end = data.iteration_time;
    this.canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": `${title}, ${data.p} pipeline ranks` });
    /** @type {{ x: number, y: number, begin: number, end: number } | null} */
    this.from = null;
    this.waiting = 0;
    this.scale = 1; // pixels of a second
    this.critical = data.rows.map(() => new Set());
    for (const [rank, i] of data.critical) this.critical[rank].add(i);
    this.mostStash = Math.max(1, ...data.stash.flat().map((step) => step[1]));
    this.rowHeight = Math.max(8, Math.min(ROW, 900 / data.p));
    this.hatched = hatched();
    parent.append(this.controls(title), this.canvas);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** @param {string} title */
  controls(title) {
    const middle = () => (this.begin + this.end) / 2;
    const step = (/** @type {number} */ share) => this.pan(share * (this.end - this.begin));
    return element(
      "div",
      { class: "row targets", role: "group", "aria-label": `What is in sight of ${title}` },
      button("−", () => this.zoom(1.6, middle()), { "aria-label": "less closely" }),
      button("+", () => this.zoom(1 / 1.6, middle()), { "aria-label": "more closely" }),
      button("◀", () => step(-0.4), { "aria-label": "earlier" }),
      button("▶", () => step(0.4), { "aria-label": "later" }),
      button("all", () => this.move(0, this.data.iteration_time)),
    );
  }

  /** @param {number} begin @param {number} end */
  show(begin, end) {
    const whole = this.data.iteration_time;
    const width = Math.min(whole, Math.max(whole / 1e5, end - begin));
    this.begin = Math.max(0, Math.min(begin, whole - width));
    this.end = this.begin + width;
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  /** @param {number} begin @param {number} end */
  move(begin, end) {
    this.show(begin, end);
    this.onRange(this, this.begin / this.data.iteration_time, this.end / this.data.iteration_time);
  }

  /** @param {number} factor @param {number} at */
  zoom(factor, at) {
    this.move(at - (at - this.begin) * factor, at + (this.end - at) * factor);
  }

  /** @param {number} seconds */
  pan(seconds) {
    this.move(this.begin + seconds, this.end + seconds);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", ({ offsetX: x, offsetY: y, pointerId }) => {
      this.from = { x, y, begin: this.begin, end: this.end };
      canvas.setPointerCapture(pointerId);
    });
    canvas.addEventListener("pointercancel", () => (this.from = null)); // the finger scrolls the page
    canvas.addEventListener("pointerup", ({ offsetX: x, offsetY: y }) => {
      if (this.from && Math.hypot(x - this.from.x, y - this.from.y) <= TAP) this.pick(x, y);
      this.from = null;
    });
    canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
      if (!this.from) return this.pick(x, y);
      const { x: before, begin, end } = this.from;
      if (Math.abs(x - before) <= TAP) return;
      const shift = ((before - x) / (canvas.clientWidth - LEFT)) * (end - begin);
      this.move(begin + shift, end + shift);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** The wheel zooms with Ctrl held, as a pinch of two fingers does; without, the page scrolls. @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const width = this.end - this.begin;
    const middle = (this.begin + this.end) / 2;
    if (event.key === "ArrowLeft") this.pan(-0.2 * width);
    else if (event.key === "ArrowRight") this.pan(0.2 * width);
    else if (event.key === "+" || event.key === "=") this.zoom(0.8, middle);
    else if (event.key === "-") this.zoom(1.25, middle);
    else if (event.key === "Home") this.move(0, this.data.iteration_time);
    else return;
    event.preventDefault();
  }

  /** The second at a place of the canvas. @param {number} x */
  time(x) {
    return this.begin + ((x - LEFT) / (this.canvas.clientWidth - LEFT)) * (this.end - this.begin);
  }

  /** The place of a second on the canvas, as it was drawn. @param {number} time */
  place(time) {
    return LEFT + (time - this.begin) * this.scale;
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const rank = Math.floor((y - TOP) / (this.rowHeight + STASH));
    const row = this.data.rows[rank];
    const time = this.time(x);
    if (row && x >= LEFT && time >= 0) this.onPick(rank, lowerBound(row, time), time);
  }

  draw() {
    const { canvas, data } = this;
    const ratio = devicePixelRatio || 1;
    const height = TOP + data.p * (this.rowHeight + STASH) + 4;
    const width = canvas.clientWidth;
    this.scale = (width - LEFT) / (this.end - this.begin);
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.ink = getComputedStyle(document.documentElement).getPropertyValue("--fg");
    this.bubble = /** @type {CanvasPattern} */ (pen.createPattern(this.hatched, "repeat"));
    pen.scale(ratio, ratio);
    pen.font = font(11);
    pen.textBaseline = "middle";
    this.drawTicks(pen, width);
    for (let rank = 0; rank < data.p; rank++) this.drawRow(pen, rank, width);
  }

  /** Round seconds at the top. @param {CanvasRenderingContext2D} pen @param {number} width */
  drawTicks(pen, width) {
    const step = roundStep((this.end - this.begin) / Math.max(2, Math.floor(width / 110)));
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    pen.fillStyle = pen.strokeStyle = this.ink ?? "";
    pen.textAlign = "left";
    for (let i = Math.ceil(this.begin / step); i * step <= this.end; i++) {
      const x = this.place(i * step);
      pen.fillRect(x, TOP - 6, 1, 4);
      if (x + 30 < width) pen.fillText(`${(i * step).toFixed(digits)} s`, x + 3, TOP / 2 - 2);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} rank @param {number} width */
  drawRow(pen, rank, width) {
    const y = TOP + rank * (this.rowHeight + STASH);
    const row = this.data.rows[rank];
    pen.font = font(11);
    pen.textAlign = "right";
    pen.fillStyle = this.ink ?? "";
    pen.fillText(String(rank), LEFT - 6, y + this.rowHeight / 2);
    const [from, to] = [0, this.data.iteration_time].map((time) => Math.min(width, Math.max(LEFT, this.place(time))));
    pen.fillStyle = this.bubble ?? "";
    pen.fillRect(from, y, to - from, this.rowHeight);
    let last = -1;
    for (let i = lowerBound(row, this.begin); i < row.length && row[i][3] < this.end; i++) {
      const left = Math.max(LEFT, this.place(row[i][3]));
      const right = Math.min(width, this.place(row[i][4]));
      const below = together(row[i - 1], row[i]);
      if (!below && right - last < 0.5) continue; // narrower than half a pixel: it would lie under the one before
      last = right;
      const height = below || together(row[i], row[i + 1]) ? this.rowHeight / 2 : this.rowHeight;
      const critical = this.critical[rank].has(i) && !below;
      this.drawPass(pen, row[i], { left, right, y: below ? y + height : y, height }, critical);
    }
    this.drawStash(pen, rank, y + this.rowHeight + STASH - GAP, width);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Pass} pass
   * @param {{ left: number, right: number, y: number, height: number }} place
   * @param {boolean} critical
   */
  drawPass(pen, [kind, , microbatch], { left, right, y, height }, critical) {
    pen.fillStyle = COLORS[kind] ?? "#888";
    pen.fillRect(left, y, Math.max(0.5, right - left - 0.5), height);
    if (critical) {
      pen.fillStyle = this.ink ?? "";
      pen.fillRect(left, y - 3, Math.max(0.5, right - left), 3);
    }
    if (microbatch !== null && right - left > 16 && this.rowHeight > 12 && height > 10) {
      pen.textAlign = "center";
      pen.font = font(Math.min(11, height - 2));
      pen.fillStyle = kind === "I" || kind === "W" ? "#000" : "#fff";
      pen.fillText(String(microbatch), (left + right) / 2, y + height / 2);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} rank @param {number} base @param {number} width */
  drawStash(pen, rank, base, width) {
    pen.fillStyle = COLORS.held;
    let from = LEFT;
    let height = 0;
    const steps = [...this.data.stash[rank], [this.end, 0]];
    for (const [time, held] of steps) {
      const x = Math.min(width, this.place(time));
      if (x - from > 0.5) {
        pen.fillRect(from, base - height, x - from, height);
        from = x;
      }
      height = (held / this.mostStash) * (STASH - GAP - 1);
      if (x === width) break;
    }
  }
}

/** Letters of so many pixels. @param {number} size */
const font = (size) => `${size}px system-ui, sans-serif`;

/** Whether two passes of a row are a fused pair. @param {Pass | undefined} pass @param {Pass | undefined} next */
export const together = (pass, next) => !!pass && !!next && pass[3] === next[3] && pass[4] === next[4];

/** The first pass of a row that ends after a time. @param {Pass[]} row @param {number} time */
function lowerBound(row, time) {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle][4] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The round number of seconds (1, 2 or 5 times a power of ten) that is no smaller. @param {number} seconds */
function roundStep(seconds) {
  const power = 10 ** Math.floor(Math.log10(seconds));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= seconds * 0.999) ?? seconds;
}

/** What the bubble is filled with: grey lines, readable on a light and on a dark page. */
function hatched() {
  const tile = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.strokeStyle = "#8d96a3";
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
  }
  pen.stroke();
  return tile;
}

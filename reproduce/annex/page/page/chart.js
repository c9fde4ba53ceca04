// Charts: ours as dots on a line, the paper's as rings, our doubt as a band; every series is named at its line.
import { el } from "./elements.js";
import { circle, figures, fitted, path, picture, rect, rounded, text, wide } from "./svg.js";

/**
 * @typedef {{ x: Scalar, y: number | null, paper?: number | null, low?: number, high?: number, status?: string }} Mark
 * @typedef {{ name: string, marks: Mark[], dashed?: boolean }} Series
 * @typedef {{ label: string, quantity: string, unit?: string, x: string, scale: string, series: Series[], height?: number,
 *   now?: Scalar | null, ask?: Scalar | null, note?: any, zero?: boolean, faded?: boolean,
 *   gap?: { x: Scalar, words: string } | null, valued?: boolean }} Chart
 * @typedef {{ x: number, y: number, mark: Mark, name: string, kind: number }} Place where a point is drawn
 */
const WIDE = 560; // from here names stand at the right of their lines
const MANY = 4; // series in one chart

/** Draw a chart in its place, at the width that the place has. @param {any} place @param {Chart} chart */
export function draw(place, chart) {
  place.classList.toggle("faded", Boolean(chart.faded));
  const series = chart.series.filter(({ marks }) => marks.some((mark) => mark.y !== null || mark.paper != null));
  fitted(place, (width) => {
    if (chart.scale === "category") return rows(chart, series, width);
    if (series.length <= MANY) return lines(chart, series, width);
    const columns = Math.max(1, Math.floor((width + 24) / 296));
    const each = (width - 24 * (columns - 1)) / columns;
    const range = extent(series);
    const small = series.map((one) => lines({ ...chart, height: 210 }, [one], each, range));
    return el("div.multiples", small);
  });
}

/** The least and the largest value that is shown. @param {Series[]} series */
function extent(series) {
  const marks = series.flatMap((one) => one.marks.flatMap(({ y, paper, low, high }) => [y, paper, low, high]));
  const values = /** @type {number[]} */ (marks.filter((value) => typeof value === "number"));
  return [Math.min(...values), Math.max(...values)];
}

/** The x values in order, and where each stands between 0 and 1. @param {Series[]} series @param {string} scale */
function horizontal(series, scale) {
  const all = [...new Set(series.flatMap(({ marks }) => marks.map(({ x }) => x)))];
  if (scale === "point") return { all, at: (/** @type {Scalar} */ x) => all.indexOf(x) / Math.max(1, all.length - 1) };
  const by = (/** @type {Scalar | undefined} */ x) => (scale === "log2" ? Math.log2(Number(x)) : Number(x));
  all.sort((one, other) => Number(one) - Number(other));
  const [first, last] = [by(all[0]), by(all.at(-1))];
  return { all, at: (/** @type {Scalar} */ x) => (last > first ? (by(x) - first) / (last - first) : 0.5) };
}

const nameOf = (/** @type {{ name: string }} */ { name }) => (name.length > 30 ? `${name.slice(0, 29)}…` : name);

/** @param {Chart} chart @param {Series[]} series @param {number} width @param {number[]} [range] where charts stand side by side */
function lines(chart, series, width, range) {
  const height = chart.height ?? (width < WIDE ? 330 : 450);
  const [least, most] = range ?? extent(series);
  const ticks = rounded(chart.zero ? 0 : least, most);
  const [bottom, top] = [ticks[0], ticks[ticks.length - 1]];
  const atEnd = width >= WIDE && !range;
  const left = 10 + Math.max(...ticks.map((tick) => wide(String(tick))));
  const named = atEnd && series.length > 1;
  const right = width - (named ? 22 + Math.max(...series.map((one) => wide(nameOf(one)) + 4), 98) : 14);
  const [high, low] = [26, height - 44];
  const { all, at } = horizontal(series, chart.scale);
  const X = (/** @type {Scalar} */ x) => left + 14 + at(x) * (right - left - 28);
  const Y = (/** @type {number} */ y) => low - ((y - bottom) / (top - bottom || 1)) * (low - high);
  const drawn = ticks.flatMap((tick) => [
    path(`M${left} ${Y(tick).toFixed(1)}H${right}`, "grid"),
    text(left - 8, Y(tick) + 4, figures(tick), "end"),
  ]);
  let before = -99;
  for (const x of all) {
    if (X(x) - before < Math.max(34, wide(String(x)) + 8)) continue;
    drawn.push(text((before = X(x)), low + 20, String(x), chart.now === x ? "mid k b" : "mid"));
  }
  drawn.push(text(left, low + 38, `${chart.x} →`));
  for (const x of [chart.now, chart.ask])
    if (x != null && all.includes(x)) drawn.push(path(`M${X(x)} ${high}V${low}`, "thin dash"));
  if (chart.ask != null)
    drawn.push(
      circle(X(chart.ask), (high + low) / 2, 13, "box"),
      text(X(chart.ask), (high + low) / 2 + 5, "?", "k b mid"),
    );
  /** @type {Place[]} */
  const places = [];
  series.forEach((one, i) => drawn.push(...oneSeries(one, (i % MANY) + 1, X, Y, places)));
  if (chart.gap && atEnd) drawn.push(...gap(chart.gap, places, right));
  const valued = chart.valued ? places.filter(({ kind }) => kind === 1) : [];
  for (const { x, y, mark } of valued) {
    const most = (named ? right : width) - wide(last(mark));
    drawn.push(text(Math.min(x + 7, most), y - 9, last(mark), "k b halo"));
  }
  if (named) drawn.push(...atEnds(series, places, right, high));
  else if (series.length > 1) drawn.push(...inside(series, places, [left, right, high, low]));
  const title = text(0, 12, range ? nameOf(series[0]) : chart.quantity, "k b");
  return explored(picture(width, height, chart.label, title, drawn), places, chart);
}

/** The band, the line and the points of a series. @param {Series} series @param {number} kind @param {(x: any) => number} X @param {(y: any) => number} Y @param {Place[]} places */
function oneSeries({ name, marks, dashed }, kind, X, Y, places) {
  const along = (/** @type {Mark[]} */ of, /** @type {"y" | "low" | "high"} */ key) =>
    of.map((/** @type {Mark} */ mark) => `${X(mark.x).toFixed(1)} ${Y(mark[key]).toFixed(1)}`);
  const ours = marks.filter((mark) => mark.y !== null);
  const sure = ours.filter(({ low, high }) => low !== undefined && high !== undefined);
  const drawn = [];
  if (sure.length > 1)
    drawn.push(path(`M${[...along(sure, "high"), ...along(sure, "low").reverse()].join("L")}Z`, `ar f${kind}`));
  if (ours.length > 1) drawn.push(path(`M${along(ours, "y").join("L")}`, `line s${kind}${dashed ? " dash" : ""}`));
  for (const mark of marks) {
    const y = mark.y ?? mark.paper;
    if (y == null) continue;
    places.push({ x: X(mark.x), y: Y(y), mark, name, kind });
    const at = (/** @type {number | null | undefined} */ value) => (value == null ? null : [X(mark.x), Y(value)]);
    drawn.push(...points(kind, dashed ? null : at(mark.y), at(mark.paper), mark.status));
  }
  return drawn;
}

/** The dot of ours, dashed and hollow where it does not fit, and the paper's ring. @param {number} kind @param {number[] | null} ours @param {number[] | null} paper @param {string} [status] */
const points = (kind, ours, paper, status) => [
  ...(ours
    ? [status === "oom" ? circle(ours[0], ours[1], 5, `pub dash s${kind}`) : circle(ours[0], ours[1], 3.5, `f${kind}`)]
    : []),
  ...(paper ? [circle(paper[0], paper[1], 7, `pub s${kind}`)] : []),
];

/** How far two series are apart where the heading says so. @param {{ x: Scalar, words: string }} of @param {Place[]} places @param {number} right */
function gap({ x, words }, places, right) {
  const ends = places.filter(({ mark }) => mark.x === x && mark.y !== null);
  if (ends.length !== 2) return [];
  const left = ends[0].x > right - 60;
  const [u, low, high] = [ends[0].x + (left ? -14 : 14), ...ends.map(({ y }) => y)];
  return [
    path(`M${u - 4} ${low}h8M${u} ${low}V${high}M${u - 4} ${high}h8`, "thin"),
    text(u + (left ? -7 : 7), (low + high) / 2 + 4, words, left ? "k b end halo" : "k b halo"),
  ];
}

/** The value of a point, ours and the paper's. @param {Mark} mark */
const last = ({ y, paper }) =>
  [y !== null && figures(y), paper != null && `paper ${figures(paper)}`].filter(Boolean).join(", ");

/** Names at the ends of lines, apart from each other. @param {Series[]} series @param {Place[]} places @param {number} right @param {number} high */
function atEnds(series, places, right, high) {
  const ends = series.map((one) => /** @type {Place} */ (places.findLast((place) => place.name === one.name)));
  let least = high + 4;
  return ends
    .sort((one, other) => one.y - other.y)
    .flatMap(({ name, kind, mark, y }) => {
      const at = Math.max(least, y - 2);
      least = at + 38;
      return [text(right + 6, at, nameOf({ name }), `b f${kind}`), text(right + 6, at + 17, last(mark))];
    });
}

/** Names within the plot, each above or below its own line, where the others are far. @param {Series[]} series @param {Place[]} places @param {number[]} frame */
function inside(series, places, [left, right, high, low]) {
  /** @type {Record<"u" | "v" | "half", number>[]} */
  const taken = [];
  return series.map((one) => {
    const half = wide(nameOf(one)) / 2;
    const own = places.filter((place) => place.name === one.name);
    const tried = own.flatMap(({ x, y }) =>
      [-14, 24].map((shift) => {
        const [u, v] = [Math.min(Math.max(x, left + half), right - half), y + shift];
        const far = places.map((place) => Math.hypot(Math.max(0, Math.abs(place.x - u) - half), place.y - v + 4));
        const clash = taken.some((it) => Math.abs(it.u - u) < it.half + half && Math.abs(it.v - v) < 17);
        const off = v < high + 8 || v > low - 4 || clash;
        return { u, v, half, room: off ? -1 : Math.min(...far, 16) - Math.abs(u - x) / 20 };
      }),
    );
    const best = tried.reduce((found, next) => (next.room > found.room ? next : found));
    taken.push(best);
    return text(best.u, best.v, nameOf(one), `b mid halo f${own[0].kind}`);
  });
}

/** Values by name, a row each: dots and rings on one axis, bands behind. @param {Chart} chart @param {Series[]} series @param {number} width */
function rows(chart, series, width) {
  const narrow = width < WIDE;
  const labels = [...new Set(series.flatMap(({ marks }) => marks.map(({ x }) => String(x))))];
  const ticks = rounded(0, Math.max(extent(series)[1], 0), narrow ? 4 : 6);
  const left = narrow ? 0 : Math.min(width / 2.5, 16 + Math.max(...labels.map(wide)));
  const tall = narrow ? 42 : 28;
  const several = series.length > 1 && series.length <= MANY;
  const high = several ? 52 : 30;
  const low = high + labels.length * tall;
  const X = (/** @type {any} */ value) =>
    left + 8 + ((value - ticks[0]) / (ticks[ticks.length - 1] - ticks[0])) * (width - left - 28);
  const drawn = ticks.flatMap((tick) => [
    path(`M${X(tick)} ${high}V${low}`, "grid"),
    text(X(tick), low + 18, figures(tick), "mid"),
  ]);
  labels.forEach((label, i) => {
    const words = label.length > 46 ? `${label.slice(0, 45)}…` : label;
    drawn.push(text(narrow ? 0 : left - 8, high + i * tall + (narrow ? 12 : 19), words, narrow ? "" : "end"));
  });
  /** @type {Place[]} */
  const places = [];
  let along = 0;
  series.forEach(({ name, marks }, i) => {
    const kind = (i % MANY) + 1;
    if (several) drawn.push(text(along, 34, name, `b f${kind}`));
    along += wide(name) + 18;
    for (const mark of marks) {
      const y = high + labels.indexOf(String(mark.x)) * tall + (narrow ? 28 : 14);
      const value = mark.y ?? mark.paper;
      if (value == null) continue;
      places.push({ x: X(value), y, mark, name, kind });
      if (mark.low !== undefined && mark.y !== null)
        drawn.push(rect(X(mark.low), y - 6, X(mark.high) - X(mark.low), 12, `ar f${kind}`));
      const at = (/** @type {number | null | undefined} */ of) => (of == null ? null : [X(of), y]);
      drawn.push(...points(kind, at(mark.y), at(mark.paper)));
    }
  });
  const title = text(0, 12, chart.quantity, "k b");
  return explored(picture(width, low + 26, chart.label, title, drawn), places, chart);
}

/** The points of a chart can be read one by one, by pointer or by arrows. @param {any} drawn @param {Place[]} places @param {Chart} chart */
function explored(drawn, places, { note, x, unit = "" }) {
  if (!note || !places.length) return drawn;
  const ring = circle(0, 0, 0, "now");
  drawn.append(ring);
  drawn.setAttribute("tabindex", "0");
  let at = -1;
  const show = (/** @type {number} */ to) => {
    at = (to + places.length) % places.length;
    const { x: cx, y: cy, mark, name } = places[at];
    for (const [key, value] of Object.entries({ r: 11, cx, cy })) ring.setAttribute(key, value);
    const band = mark.low === undefined ? "" : `, 9 of 10 in ${figures(mark.low)} to ${figures(Number(mark.high))}`;
    const where = typeof mark.x === "number" ? `${x} ${mark.x}` : mark.x;
    note.textContent = `${where}${name ? `, ${name}` : ""}: ${last(mark)} ${unit}${band}`;
  };
  drawn.addEventListener("keydown", (/** @type {any} */ event) => {
    const steps = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 });
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    show(at < 0 ? 0 : at + step);
  });
  drawn.addEventListener("pointermove", (/** @type {any} */ event) => {
    const box = drawn.getBoundingClientRect();
    const far = places.map((place) =>
      Math.hypot(place.x - event.clientX + box.left, place.y - event.clientY + box.top),
    );
    const near = far.indexOf(Math.min(...far));
    if (far[near] < 40) show(near);
  });
  return drawn;
}

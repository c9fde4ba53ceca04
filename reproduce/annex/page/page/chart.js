// Charts: ours as dots on a line, the paper's as rings, our doubt as a band; every series is named at its line.
import { element } from "./elements.js";
import { figures, fitted, path, picture, rect, rounded, svg, text, wide } from "./svg.js";

/**
 * @typedef {{ x: Scalar, y: number | null, paper?: number | null, low?: number, high?: number, status?: string }} Mark
 * @typedef {{ name: string, marks: Mark[], dashed?: boolean }} Series
 * @typedef {{ label: string, quantity: string, unit?: string, x: string, scale: string, series: Series[], height?: number,
 *   now?: Scalar | null, ask?: Scalar | null, note?: Node, zero?: boolean, faded?: boolean }} Chart
 * @typedef {{ x: number, y: number, mark: Mark, name: string, kind: number }} Place
 */

const WIDE = 560; // from here names stand at the right of their lines
const MANY = 4; // series in one chart

/** Draw a chart in its place, at the width that the place has. @param {HTMLElement} place @param {Chart} chart */
export function draw(place, chart) {
  place.classList.toggle("faded", Boolean(chart.faded));
  const series = chart.series.filter(({ marks }) => marks.some((mark) => mark.y !== null || mark.paper != null));
  fitted(place, (width) => {
    if (chart.scale === "category") return [rows(chart, series, width)];
    if (series.length <= MANY) return [lines(chart, series, width)];
    const columns = Math.max(1, Math.floor((width + 24) / 296));
    const each = (width - 24 * (columns - 1)) / columns;
    const range = [Math.min(...series.flatMap(ends)), Math.max(...series.flatMap(ends))];
    const small = series.map((one) => lines({ ...chart, height: 210 }, [one], each, range));
    return [element("div", { class: "multiples" }, ...small)];
  });
}

/** All values that a series shows. @param {Series} series */
const ends = ({ marks }) =>
  marks.flatMap(({ y, paper, low, high }) => [y, paper, low, high]).filter((value) => typeof value === "number");

/** @param {Scalar[]} values @param {string} scale */
function horizontal(values, scale) {
  const all = [...new Set(values)];
  if (scale === "point") return { all, at: (/** @type {Scalar} */ x) => all.indexOf(x) / Math.max(1, all.length - 1) };
  all.sort((one, other) => Number(one) - Number(other));
  const by = scale === "log2" ? Math.log2 : Number;
  const [first, last] = [by(Number(all[0])), by(Number(all.at(-1)))];
  return { all, at: (/** @type {Scalar} */ x) => (last > first ? (by(Number(x)) - first) / (last - first) : 0.5) };
}

/**
 * @param {Chart} chart
 * @param {Series[]} series
 * @param {number} width
 * @param {number[]} [range] of what is shown, where charts stand beside each other
 */
function lines(chart, series, width, range) {
  const height = chart.height ?? (width < WIDE ? 330 : 450);
  const shown = range ?? series.flatMap(ends);
  const ticks = rounded(chart.zero ? 0 : Math.min(...shown), Math.max(...shown));
  const [bottom, top] = [ticks[0], ticks[ticks.length - 1]];
  const atEnd = width >= WIDE && !range;
  const name = (/** @type {Series} */ one) => (one.name.length > 30 ? `${one.name.slice(0, 29)}…` : one.name);
  const left = 10 + Math.max(...ticks.map((tick) => wide(String(tick))));
  const right =
    width - (atEnd && series.length > 1 ? 22 + Math.max(...series.map((one) => wide(name(one)) + 4), 98) : 14);
  const [high, low] = [26, height - 44];
  const { all, at } = horizontal(
    series.flatMap(({ marks }) => marks.map(({ x }) => x)),
    chart.scale,
  );
  const X = (/** @type {Scalar} */ x) => left + 14 + at(x) * (right - left - 28);
  const Y = (/** @type {number} */ y) => low - ((y - bottom) / (top - bottom || 1)) * (low - high);
  const frame = ticks.flatMap((tick) => [
    path(`M${left} ${Y(tick).toFixed(1)}H${right}`, "grid"),
    text(left - 8, Y(tick) + 4, figures(tick), "end"),
  ]);
  let before = -99;
  for (const x of all) {
    if (X(x) - before < Math.max(34, wide(String(x)) + 8)) continue;
    frame.push(text((before = X(x)), low + 20, String(x), chart.now === x ? "mid k b" : "mid"));
  }
  frame.push(text(left, low + 38, `${chart.x} →`));
  /** @type {Place[]} */
  const places = [];
  const drawn = series.flatMap((one, i) => oneSeries(one, (i % MANY) + 1, X, Y, places));
  const title = range ? text(0, 12, name(series[0]), "k b") : text(0, 12, chart.quantity, "k b");
  const names =
    series.length < 2
      ? []
      : atEnd
        ? atEnds(series, places, name, right, high)
        : inside(series, places, name, [left, right, high, low]);
  const now =
    chart.now != null && all.includes(chart.now) ? [path(`M${X(chart.now)} ${high}V${low}`, "thin dash")] : [];
  if (chart.ask != null && all.includes(chart.ask)) {
    const middle = (high + low) / 2;
    now.push(
      path(`M${X(chart.ask)} ${high}V${low}`, "thin dash"),
      svg("circle", { cx: X(chart.ask), cy: middle, r: 13, class: "box" }),
      text(X(chart.ask), middle + 5, "?", "k b mid"),
    );
  }
  return explored(picture(width, height, chart.label, title, ...frame, ...now, ...drawn, ...names), places, chart);
}

/**
 * @param {Series} series
 * @param {number} kind
 * @param {(x: Scalar) => number} X
 * @param {(y: number) => number} Y
 * @param {Place[]} places
 */
function oneSeries({ name, marks, dashed }, kind, X, Y, places) {
  const ours = marks.filter((mark) => mark.y !== null);
  const sure = ours.filter(({ low, high }) => low !== undefined && high !== undefined);
  const point = (/** @type {Scalar} */ x, /** @type {number} */ y) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
  const drawn = [];
  if (sure.length > 1) {
    const over = sure.map((mark) => point(mark.x, Number(mark.high)));
    const under = sure.map((mark) => point(mark.x, Number(mark.low))).reverse();
    drawn.push(path(`M${[...over, ...under].join("L")}Z`, `ar f${kind}`));
  }
  if (ours.length > 1)
    drawn.push(
      path(`M${ours.map((mark) => point(mark.x, Number(mark.y))).join("L")}`, `line s${kind}${dashed ? " dash" : ""}`),
    );
  for (const mark of marks) {
    const y = mark.y ?? mark.paper;
    if (y == null) continue;
    places.push({ x: X(mark.x), y: Y(y), mark, name, kind });
    const hollow = mark.status === "oom";
    if (mark.y !== null && !dashed)
      drawn.push(
        svg("circle", {
          cx: X(mark.x),
          cy: Y(mark.y),
          r: hollow ? 5 : 3.5,
          class: hollow ? `pub dash s${kind}` : `f${kind}`,
        }),
      );
    if (mark.paper != null)
      drawn.push(svg("circle", { cx: X(mark.x), cy: Y(mark.paper), r: 7, class: `pub s${kind}` }));
  }
  return drawn;
}

/** The last value of a series, ours and the paper's. @param {Mark} mark */
const last = ({ y, paper }) =>
  [...(y === null ? [] : [figures(y)]), ...(paper == null ? [] : [`paper ${figures(paper)}`])].join(", ");

/**
 * Names at the ends of lines, apart from each other.
 *
 * @param {Series[]} series @param {Place[]} places @param {(one: Series) => string} name @param {number} right @param {number} high
 */
function atEnds(series, places, name, right, high) {
  const found = series.map((one) => /** @type {Place} */ (places.filter((place) => place.name === one.name).at(-1)));
  const order = found.map((place, i) => ({ place, i })).sort((one, other) => one.place.y - other.place.y);
  let least = high + 4;
  return order.flatMap(({ place, i }) => {
    const y = Math.max(least, place.y - 2);
    least = y + 38;
    return [text(right + 6, y, name(series[i]), `b f${place.kind}`), text(right + 6, y + 17, last(place.mark))];
  });
}

/**
 * Names within the plot, each above or below its own line, where the others are far.
 *
 * @param {Series[]} series @param {Place[]} places @param {(one: Series) => string} name
 * @param {number[]} frame
 */
function inside(series, places, name, [left, right, high, low]) {
  /** @type {[number, number, number][]} */
  const taken = [];
  return series.map((one) => {
    const words = name(one);
    const half = wide(words) / 2;
    const own = places.filter((place) => place.name === one.name);
    const tried = own.flatMap(({ x, y }) =>
      [-14, 24].map((shift) => {
        const at = [Math.min(Math.max(x, left + half), right - half), y + shift];
        const near = places.map((place) =>
          Math.hypot(Math.max(0, Math.abs(place.x - at[0]) - half), place.y - at[1] + 4),
        );
        const clash = taken.some(([u, v, w]) => Math.abs(u - at[0]) < w + half && Math.abs(v - at[1]) < 17);
        const off = at[1] < high + 8 || at[1] > low - 4 || clash;
        return { at, room: off ? -1 : Math.min(...near, 16) - Math.abs(at[0] - x) / 20 };
      }),
    );
    const { at } = tried.reduce((best, next) => (next.room > best.room ? next : best));
    taken.push([at[0], at[1], half]);
    return text(at[0], at[1], words, `b mid halo f${own[0].kind}`);
  });
}

/**
 * Values by name, a row each: dots and rings on one axis, bands behind.
 *
 * @param {Chart} chart @param {Series[]} series @param {number} width
 */
function rows(chart, series, width) {
  const labels = [...new Set(series.flatMap(({ marks }) => marks.map(({ x }) => String(x))))];
  const ticks = rounded(0, Math.max(...series.flatMap(ends), 0), width < WIDE ? 4 : 6);
  const left = width < WIDE ? 0 : Math.min(width / 2.5, 16 + Math.max(...labels.map(wide)));
  const tall = width < WIDE ? 42 : 28;
  const several = series.length > 1 && series.length <= MANY;
  const high = several ? 52 : 30;
  const low = high + labels.length * tall;
  const X = (/** @type {number} */ value) =>
    left + 8 + ((value - ticks[0]) / (ticks[ticks.length - 1] - ticks[0])) * (width - left - 28);
  const frame = ticks.flatMap((tick) => [
    path(`M${X(tick)} ${high}V${low}`, "grid"),
    text(X(tick), low + 18, figures(tick), "mid"),
  ]);
  labels.forEach((label, i) => {
    const words = label.length > 46 ? `${label.slice(0, 45)}…` : label;
    frame.push(
      width < WIDE ? text(0, high + i * tall + 12, words) : text(left - 8, high + i * tall + 19, words, "end"),
    );
  });
  /** @type {Place[]} */
  const places = [];
  let along = 0;
  const names = !several
    ? []
    : series.map(({ name }, i) => text((along += i ? wide(series[i - 1].name) + 18 : 0), 34, name, `b f${i + 1}`));
  const drawn = series.flatMap(({ name, marks }, i) =>
    marks.flatMap((mark) => {
      const y = high + labels.indexOf(String(mark.x)) * tall + (width < WIDE ? 28 : 14);
      const kind = (i % MANY) + 1;
      const value = mark.y ?? mark.paper;
      if (value == null) return [];
      places.push({ x: X(value), y, mark, name, kind });
      const band = mark.low !== undefined && mark.high !== undefined && mark.y !== null;
      return [
        ...(band
          ? [rect(X(Number(mark.low)), y - 6, X(Number(mark.high)) - X(Number(mark.low)), 12, `ar f${kind}`)]
          : []),
        ...(mark.y === null ? [] : [svg("circle", { cx: X(mark.y), cy: y, r: 3.5, class: `f${kind}` })]),
        ...(mark.paper == null ? [] : [svg("circle", { cx: X(mark.paper), cy: y, r: 7, class: `pub s${kind}` })]),
      ];
    }),
  );
  const title = text(0, 12, chart.quantity, "k b");
  return explored(picture(width, low + 26, chart.label, title, ...names, ...frame, ...drawn), places, chart);
}

/**
 * The points of a chart can be read one by one, by pointer or by arrows.
 *
 * @param {SVGElement} drawn @param {Place[]} places @param {Chart} chart
 */
function explored(drawn, places, { note, x, unit = "" }) {
  if (!note || !places.length) return drawn;
  const ring = svg("circle", { r: 0, class: "now" });
  drawn.append(ring);
  drawn.setAttribute("tabindex", "0");
  let at = -1;
  const show = (/** @type {number} */ to) => {
    at = (to + places.length) % places.length;
    const { x: cx, y: cy, mark, name } = places[at];
    ring.setAttribute("r", "11");
    ring.setAttribute("cx", String(cx));
    ring.setAttribute("cy", String(cy));
    const band = mark.low === undefined ? "" : `, 9 of 10 in ${figures(mark.low)} to ${figures(Number(mark.high))}`;
    const where = typeof mark.x === "number" ? `${x} ${mark.x}` : mark.x;
    note.textContent = `${where}${name ? `, ${name}` : ""}: ${last(mark)} ${unit}${band}`;
  };
  drawn.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(at < 0 ? 0 : at + step);
  });
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const far = places.map((place) =>
      Math.hypot(place.x - event.clientX + box.left, place.y - event.clientY + box.top),
    );
    const near = far.indexOf(Math.min(...far));
    if (far[near] < 40) show(near);
  });
  return drawn;
}

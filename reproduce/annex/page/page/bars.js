// Bars: the interval of a number, the bound of a claim, parts of a whole, and rows from one value to another.
import { capital, circle, figures, path, picture, rect, signed, text, wide } from "./svg.js";

const [NARROW, TALL] = [480, 38];
/**
 * @typedef {{ label: string, from: number, to: number, look: string, words: string, strong?: boolean }} Row
 */

/** A value between the ends of its interval. @param {number} now @param {Interval} ends @param {string} unit */
export function interval(now, { low, high }, unit) {
  const X = (/** @type {number} */ at) => 100 + ((at - low) / (high - low)) * 100;
  return picture(
    300,
    40,
    `9 of 10 in ${figures(low)} to ${figures(high)} ${unit}`,
    path("M0 12H300", "thin"),
    rect(100, 6, 100, 12, "ar f1"),
    circle(X(now), 12, 6, "f1"),
    text(100, 36, figures(low), "mid"),
    text(200, 36, `${figures(high)} ${unit}`, "mid"),
  );
}

/** What a claim needs (green), its bound (the mark) and what came out (the dot). @param {Bar} bar */
export function bound({ value, bound: at, least, needs, said }) {
  const low = Math.min(value, at);
  const room = Math.abs(value - at) || Math.abs(value) || 1;
  const [dot, mark] = [value, at].map((each) => 60 + ((each - low) / room) * 180);
  const within = (/** @type {number} */ x, /** @type {string} */ words) =>
    Math.min(Math.max(x, wide(words) / 2), 300 - wide(words) / 2);
  return picture(
    300,
    46,
    `Result ${said}, needed: ${needs}`,
    rect(0, 16, 300, 10, "sunk"),
    rect(least ? mark : 0, 16, least ? 300 - mark : mark, 10, "p-holds needed"),
    path(`M${mark} 11V31`, "play"),
    circle(dot, 21, 6, "inkf"),
    text(within(dot, said), 8, said, "k b mid"),
    text(within(mark, needs), 45, needs, "mid"),
  );
}

/** Parts of a whole as one bar: beyond the whole it is too much. @param {Part[]} given @param {number} whole @param {string} unit @param {number} width */
export function stack(given, whole, unit, width) {
  const parts = given.filter(({ size }) => size > 0);
  const sum = parts.reduce((total, { size }) => total + size, 0);
  const most = Math.max(sum, whole);
  const X = (/** @type {number} */ size) => (size / most) * (width - 4) + 2;
  const memory = unit === "GB";
  const drawn = [rect(2, 6, width - 4, TALL, "sunk")];
  const small = [];
  let at = 0;
  for (const { look, label, size } of parts) {
    const [from, to] = [X(at), X((at += size))];
    drawn.push(rect(from, 6, to - from - 1, TALL, look));
    if (to - from > wide(label) + 12 && look !== "wait")
      drawn.push(text(from + 6, 22, capital(label), `b on-${look}`), text(from + 6, 38, figures(size), `on-${look}`));
    else if (size > most / 300) small.push({ label, size });
  }
  if (memory) {
    drawn.push(
      path(`M${X(whole)} 0V${TALL + 12}`, "play"),
      text(Math.max(60, X(sum)) - 4, TALL + 24, `${figures(sum)} GB`, "k b end"),
      text(width, TALL + 42, `${figures(whole)} GB usable`, "end"),
    );
    const middle = (X(sum) + X(whole)) / 2;
    if (X(whole) - X(sum) > wide("free") + 12)
      drawn.push(text(middle, 22, "free", "mid"), text(middle, 38, figures(whole - sum), "mid"));
    if (sum > whole) drawn.push(rect(X(whole), 6, X(sum) - X(whole), TALL, "bad-line over", 0));
  }
  let [x, y] = [0, TALL + (memory ? 42 : 24)];
  small.sort((one, other) => other.size - one.size);
  for (const { label, size } of small.slice(0, memory ? 2 : 6)) {
    const words = `${label} ${figures(size)}`;
    if (x && x + wide(words) > width - (memory ? 110 : 0)) [x, y] = [0, y + 18];
    drawn.push(text(x, y, words));
    x += wide(words) + 14;
  }
  return picture(width, y + 8, parts.map(({ label, size }) => `${label} ${figures(size)} ${unit}`).join(", "), drawn);
}

/** Rows from one value to another on one scale, with zero as a line where some lie below it. @param {Row[]} rows @param {number} width */
export function across(rows, width) {
  const narrow = width < NARROW;
  const [left, tall] = [narrow ? 0 : Math.min(264, width * 0.45), narrow ? 44 : 28];
  const [least, most] = [
    Math.min(0, ...rows.map(({ to }) => to)),
    Math.max(0.01, ...rows.flatMap(({ from, to }) => [from, to])),
  ];
  const [start, end] = [left + (least < 0 ? 50 : 0), width - 70];
  const X = (/** @type {number} */ at) => start + ((at - least) / (most - least)) * (end - start);
  const height = 16 + rows.length * tall;
  const drawn = rows.flatMap(({ label, from, to, look, words, strong }, i) => {
    const y = 8 + i * tall + (narrow ? 16 : 0);
    const [low, high] = [X(Math.min(from, to)), X(Math.max(from, to))];
    const below = to < from && least < 0;
    return [
      rect(low, y, Math.max(1, high - low), 16, look),
      text(below ? low - 6 : high + 6, y + 13, words, below ? "k b end" : "k b"),
      text(0, narrow ? y - 6 : y + 13, narrow ? label : label.slice(0, left / 7), strong ? "k b" : ""),
    ];
  });
  const zero = least < 0 && path(`M${X(0)} 0V${height}`, "thin");
  return picture(width, height, rows.map(({ label, words }) => `${label} ${words}`).join(", "), zero, drawn);
}

/** What each resource has of the time, in %. @param {Share[]} parts @returns {Row[]} */
export const shares = (parts) =>
  parts.map(({ label, look, share }) => ({
    label: capital(label),
    from: 0,
    to: 100 * share,
    look,
    words: (100 * share).toFixed(1),
  }));

/** What each change gains or loses, in %. @param {Gain[]} changes @returns {Row[]} */
export const gains = (changes) =>
  changes.map(({ change, faster_by: by, fits }) => ({
    label: `${capital(change)}${fits ? "" : " · does not fit"}`,
    from: 0,
    to: 100 * by,
    look: fits ? (by < 0 ? "f2" : "f1") : "pub s1 dash",
    words: signed(100 * by, (size) => size.toFixed(1)),
  }));

/** From one sum to another, part by part. @param {string[]} names @param {number[]} ends @param {Part[]} parts @returns {Row[]} */
export function waterfall(names, ends, parts) {
  const end = (/** @type {number} */ i) => ({
    label: names[i],
    from: 0,
    to: ends[i],
    look: `f${i + 1}`,
    words: `${figures(ends[i])} s`,
    strong: true,
  });
  let at = ends[0];
  const steps = parts.map(({ look, label, size }) => ({
    label: `${size < 0 ? "−" : "+"} ${label}`,
    from: at,
    to: (at += size),
    look,
    words: signed(size),
  }));
  return [end(0), ...steps, end(1)];
}

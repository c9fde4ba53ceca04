// Bars of What if: an interval, parts of a whole, gains about zero, and a waterfall.
import { figures, path, picture, rect, svg, text, wide } from "./svg.js";

const [NARROW, TALL] = [480, 38];
/** @type {Record<string, string>} */
const LOOKS = {
  forward: "fwd",
  backward: "bwd",
  recompute: "fwd2",
  bubble: "wait",
  pipeline_communication: "msg",
  data_parallel: "msg",
  expert_exchange: "msg",
  weights: "fwd",
  gradients: "bwd",
  stashed_activations: "fwd2",
  working_activations: "fwd2",
};

/** How a part of a time or of the memory looks: the class of its colour. @param {string} name */
export const lookOf = (name) => LOOKS[name] ?? "opt";

/** @typedef {{ look: string, label: string, size: number }} Part */

/** The value between the ends of its interval. @param {WhatIfAnswer} _ @param {string} value @param {Interval} ends @param {string} unit */
export function interval(_, value, { low, high }, unit) {
  const [least, most] = [low - (high - low), high + (high - low)];
  const X = (/** @type {number} */ at) => ((at - least) / (most - least)) * 300;
  const now = Number(value.replaceAll(",", ""));
  return picture(
    300,
    40,
    `9 of 10 in ${figures(low)} to ${figures(high)} ${unit}`,
    path("M0 12H300", "thin"),
    rect(X(low), 6, X(high) - X(low), 12, "ar f1"),
    svg("circle", { class: "f1", cx: X(now), cy: 12, r: 6 }),
    text(X(low), 36, figures(low), "mid"),
    text(X(high), 36, `${figures(high)} ${unit}`, "mid"),
  );
}

/** Parts of a whole as one bar: beyond the whole it is too much. @param {Part[]} parts @param {number} whole @param {string} unit @param {number} width */
export function stack(parts, whole, unit, width) {
  const sum = parts.reduce((total, { size }) => total + size, 0);
  const most = Math.max(sum, whole);
  const X = (/** @type {number} */ size) => (size / most) * (width - 4) + 2;
  let at = 0;
  const drawn = [rect(2, 6, width - 4, TALL, "sunk")];
  const small = [];
  for (const { look, label, size } of parts.filter((part) => part.size > 0)) {
    const [from, to] = [X(at), X((at += size))];
    drawn.push(rect(from, 6, to - from - 1, TALL, look));
    const words = label[0].toUpperCase() + label.slice(1);
    if (to - from > wide(words) + 12 && look !== "wait")
      drawn.push(text(from + 6, 22, words, `b on-${look}`), text(from + 6, 38, figures(size), `on-${look}`));
    else small.push({ label, size, at: (from + to) / 2 });
  }
  if (unit === "GB") {
    drawn.push(path(`M${X(whole)} 0V${TALL + 12}`, "play"));
    if (sum > whole)
      drawn.push(svg("rect", { x: X(whole), y: 6, width: X(sum) - X(whole), height: TALL, class: "bad-line over" }));
    drawn.push(
      text(Math.max(60, X(sum)) - 4, TALL + 24, `${figures(sum)} GB`, "k b end"),
      text(width, TALL + 42, `${figures(whole)} GB usable`, "end"),
    );
  }
  const rest = small.sort((one, other) => other.size - one.size).filter(({ size }) => size > most / 300);
  let [x, y] = [0, TALL + (unit === "GB" ? 42 : 24)];
  for (const { label, size } of rest.slice(0, unit === "GB" ? 2 : 6)) {
    const words = `${label} ${figures(size)}`;
    if (x && x + wide(words) > width - (unit === "GB" ? 110 : 0)) [x, y] = [0, y + 18];
    drawn.push(text(x, y, words));
    x += wide(words) + 14;
  }
  const told = parts.filter(({ size }) => size > 0).map(({ label, size }) => `${label} ${figures(size)} ${unit}`);
  return [picture(width, y + 8, told.join(", "), ...drawn)];
}

/** What each change gains or loses, about zero. @param {{ change: string, faster_by: number, fits: boolean }[]} rows @param {number} width */
export function bars(rows, width) {
  const narrow = width < NARROW;
  const most = Math.max(0.01, ...rows.map((row) => Math.abs(row.faster_by)));
  const left = narrow ? 0 : 230;
  const zero = left + (width - left) * 0.42;
  const tall = narrow ? 44 : 28;
  const drawn = rows.flatMap(({ change, faster_by, fits }, i) => {
    const y = 8 + i * tall + (narrow ? 16 : 0);
    const size = (Math.abs(faster_by) / most) * (width - zero - 56);
    const length = Math.min(size, faster_by < 0 ? zero - left - 50 : size);
    const [x, kind] = faster_by < 0 ? [zero - length, "f2"] : [zero, "f1"];
    const words = `${faster_by < 0 ? "−" : faster_by > 0 ? "+" : ""}${(100 * Math.abs(faster_by)).toFixed(1)}`;
    const bar = fits
      ? rect(x, y, length, 16, kind)
      : svg("rect", { x, y, width: length, height: 16, class: "pub s1 dash" });
    const name = `${change[0].toUpperCase()}${change.slice(1)}${fits ? "" : " · does not fit"}`;
    return [
      bar,
      text(faster_by < 0 ? x - 6 : x + length + 6, y + 13, words, faster_by < 0 ? "k b end" : "k b"),
      narrow ? text(0, y - 6, name) : text(0, y + 13, name.slice(0, 34)),
    ];
  });
  const label = rows.map(({ change, faster_by }) => `${change} ${(100 * faster_by).toFixed(1)}%`).join(", ");
  const height = 16 + rows.length * tall;
  return [picture(width, height, label, path(`M${zero} 0V${height}`, "thin"), ...drawn)];
}

/** From one sum to another, part by part. @param {string[]} names @param {number[]} ends @param {Part[]} parts @param {number} width */
export function waterfall(names, ends, parts, width) {
  const [left, right] = [Math.min(190, width * 0.45), 70];
  const most = Math.max(
    ...ends,
    ...parts.map((_, i) => ends[0] + parts.slice(0, i + 1).reduce((sum, { size }) => sum + size, 0)),
  );
  const X = (/** @type {number} */ at) => left + (at / most) * (width - left - right);
  let at = ends[0];
  const rows = parts.map(({ look, label, size }) => {
    const [from, to] = [at, (at += size)];
    return {
      label: `${size < 0 ? "−" : "+"} ${label}`,
      from: Math.min(from, to),
      to: Math.max(from, to),
      look,
      words: `${size < 0 ? "−" : "+"}${figures(Math.abs(size))}`,
    };
  });
  const first = { label: names[0], from: 0, to: ends[0], look: "f1", words: `${figures(ends[0])} s` };
  const last = { label: names[1], from: 0, to: ends[1], look: "f2", words: `${figures(ends[1])} s` };
  const drawn = [first, ...rows, last].flatMap(({ label, from, to, look, words }, i, all) => {
    const strong = i === 0 || i === all.length - 1 ? "k b" : "";
    return [
      text(0, 20 + i * 28, label.slice(0, Math.floor(left / 7.2)), strong),
      rect(X(from), 7 + i * 28, Math.max(1, X(to) - X(from)), 17, look),
      text(X(to) + 6, 20 + i * 28, words, "k b"),
    ];
  });
  return [
    picture(
      width,
      16 + 28 * (rows.length + 2),
      `From ${figures(ends[0])} to ${figures(ends[1])} s: ${rows.map(({ label, words }) => `${label} ${words}`).join(", ")}`,
      ...drawn,
    ),
  ];
}

// A pipeline's timeline: stages as rows, time along, waiting hatched, what repeats folded, memory beneath, one playhead.
import { element } from "./elements.js";
import { figures, fitted, path, picture, rect, rounded, svg, text } from "./svg.js";

/** @type {Record<string, string>} */
const LOOKS = {
  F: "fwd",
  B: "bwd",
  I: "bwd",
  W: "bwd2",
  exchange: "msg",
  data_parallel: "msg",
  optimizer: "opt",
  host: "opt",
};
/** @type {Record<string, string>} */
export const NAMES = {
  fwd: "forward",
  fwd2: "forward, later chunks",
  bwd: "backward",
  bwd2: "weights’ gradient",
  msg: "messages",
  opt: "optimizer",
};
const [WIDE, LEAST, LEAST_NARROW, MOST_ROWS] = [560, 6, 3, 16];
const [TOP, HELD] = [24, 62];

/**
 * @typedef {{ from: number, to: number, x: number, y: number, width: number }} Pane
 * @typedef {{ data: TimelineAnswer, title: string, whole: number, unfolded?: boolean, onTime?: (time: number) => void }} Shown
 */

/** How a pass is drawn; with chunks, those after the first are lighter. @param {Pass} pass @param {number} p */
const lookOf = ([kind, stage], p) => (kind === "F" && (stage ?? 0) >= p ? "fwd2" : (LOOKS[kind] ?? "opt"));

/** The looks that a timeline has. @param {TimelineAnswer} data */
export const looks = (data) => new Set(data.rows.flatMap((row) => row.map((pass) => lookOf(pass, data.p))));

/** What the looks mean. @param {Set<string>} used */
export const key = (used) =>
  element(
    "ul",
    { class: "key" },
    ...Object.entries(NAMES)
      .filter(([look]) => used.has(look))
      .map(([look, words]) =>
        element(
          "li",
          {},
          svg("svg", { width: 18, height: 14, "aria-hidden": "true" }, rect(0, 0, 18, 14, look)),
          words,
        ),
      ),
    element(
      "li",
      {},
      svg("svg", { width: 18, height: 14, "aria-hidden": "true" }, rect(0, 0, 18, 14, "wait")),
      "waiting, the “bubble”",
    ),
    element("li", {}, "numbers: microbatch"),
  );

/** Whether two passes of a row are a fused pair. @param {Pass | undefined} pass @param {Pass | undefined} next */
const together = (pass, next) => !!pass && !!next && pass[3] === next[3] && pass[4] === next[4];

/** The shortest forward pass. @param {TimelineAnswer} data */
const shortest = ({ rows, iteration_time }) =>
  Math.min(iteration_time, ...rows[0].filter(([kind]) => kind === "F").map(([, , , start, end]) => end - start));

/**
 * Draws a timeline in its place, at its width; returns what moves its playhead.
 *
 * @param {HTMLElement} place
 * @param {Shown} shown
 */
export function draw(place, shown) {
  /** @type {Pane[]} */
  let panes = [];
  /** @type {SVGElement[]} */
  let heads = [];
  let now = -1;
  const height = rowsOf(shown.data.p).length * rowHeight(shown.data.p) + 8;
  const move = (/** @type {number} */ time) => {
    now = time;
    panes.forEach(({ from, to, x, width }, i) => {
      const inside = time >= from && time <= to;
      const at = x + ((time - from) / (to - from)) * width;
      heads[i].setAttribute("d", inside ? `M${at.toFixed(1)} ${TOP - 8}V${TOP + height + HELD + 10}` : "");
    });
  };
  fitted(place, (width) => {
    const [made, lines, nodes] = laid(shown, width, height);
    [panes, heads] = [made, lines];
    if (now >= 0) move(now);
    return nodes;
  });
  return move;
}

const rowHeight = (/** @type {number} */ p) => (p > 8 ? 27 : 40);

/** The stages that are drawn: of many the first and last four. @param {number} p @returns {(number | null)[]} */
const rowsOf = (p) =>
  p > MOST_ROWS ? [0, 1, 2, 3, null, p - 4, p - 3, p - 2, p - 1] : Array.from({ length: p }, (_, i) => i);

/** @param {Shown} shown @param {number} width @param {number} height @returns {[Pane[], SVGElement[], Node[]]} */
function laid(shown, width, height) {
  const { data, whole, title, unfolded } = shown;
  const narrow = width < WIDE;
  const left = narrow ? 26 : 62;
  const least = 0.95 + (narrow ? LEAST_NARROW : LEAST); // with the gap between passes
  const scale = shortest(data) / least; // seconds of a pixel, at most
  const fits = whole / (width - left - 2) <= scale;
  if (fits || unfolded) {
    const across = fits ? width - left - 2 : Math.ceil(whole / scale);
    const pane = { from: 0, to: whole, x: left, y: 0, width: across };
    const head = path("", "play");
    const drawn = drawing(shown, [pane], [head], left + across + 2, height, title);
    const nodes = fits
      ? [drawn]
      : [element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, unfolded` }, drawn)];
    return [[pane], [head], nodes];
  }
  const gap = narrow ? 0 : 112;
  const across = narrow ? width - left - 2 : (width - left - 2 - gap) / 2;
  const span = Math.min(across * scale, whole / 2);
  const panes = [0, 1].map((side) => ({
    from: side * (whole - span),
    to: span + side * (whole - span),
    x: left + (narrow ? 0 : side * (across + gap)),
    y: 0,
    width: across,
  }));
  const heads = panes.map(() => path("", "play"));
  const [first, second] = leftOut(data, span, whole);
  if (narrow) {
    const halves = panes.map((pane, i) =>
      drawing(shown, [pane], [heads[i]], width, height, `${title}, ${i ? "end" : "start"}`),
    );
    return [
      panes,
      heads,
      [halves[0], element("p", { class: "fold" }, `${first} ${second.replace("|", " ")}`), halves[1]],
    ];
  }
  const drawn = drawing(shown, panes, heads, width, height, title);
  const middle = left + across + gap / 2;
  const y = TOP + height / 2;
  drawn.append(
    path(
      `M${left + across + 8} ${TOP}V${TOP + height + HELD}M${left + across + gap - 8} ${TOP}V${TOP + height + HELD}`,
      "thin dash",
    ),
    ...[
      ["⋯", "k b"],
      [first.replace(" alike;", ""), "k b"],
      ["alike", ""],
      ...second.split("|").map((words) => [words, ""]),
    ].map(([words, kind], i) => text(middle, y - 40 + 18 * i, words, `mid ${kind}`)),
  );
  return [panes, heads, [drawn]];
}

/** What a fold leaves out, in words. @param {TimelineAnswer} data @param {number} span @param {number} whole */
function leftOut({ rows, unit }, span, whole) {
  const [from, to] = [span, whole - span];
  const busy = rows[0].reduce(
    (sum, [, , , start, end]) => sum + Math.max(0, Math.min(end, to) - Math.max(start, from)),
    0,
  );
  const words = (/** @type {number} */ seconds) => `${figures(Math.max(0, seconds))} ${unit}`;
  return [`${words(to - from)} alike;`, `stage 1 waits|${words(to - from - busy)} in all`];
}

/** @param {Shown} shown @param {Pane[]} panes @param {SVGElement[]} heads @param {number} width @param {number} height @param {string} title */
function drawing({ data, onTime }, panes, heads, width, height, title) {
  const drawn = panes.flatMap((pane) => [
    ...ticks(data, pane, height),
    ...rowsOf(data.p).flatMap((rank, i) => row(data, pane, rank, TOP + i * rowHeight(data.p))),
    ...held(data, pane, TOP + height),
  ]);
  const names = rowsOf(data.p).map((rank, i) =>
    text(
      panes[0].x - 8,
      TOP + i * rowHeight(data.p) + rowHeight(data.p) / 2 + 2,
      rank === null ? "⋯" : rank || panes[0].x < 40 ? String(rank + 1) : "Stage 1",
      "end k",
    ),
  );
  const made = picture(width, TOP + height + HELD + 12, title, ...drawn, ...names, ...heads);
  if (onTime)
    made.addEventListener("click", (event) => {
      const x = event.clientX - made.getBoundingClientRect().left;
      const pane = panes.find((each) => x >= each.x && x <= each.x + each.width);
      if (pane) onTime(pane.from + ((x - pane.x) / pane.width) * (pane.to - pane.from));
    });
  return made;
}

/** @param {TimelineAnswer} data @param {Pane} pane @param {number} height */
function ticks({ unit }, { from, to, x, width }, height) {
  return rounded(from, to, Math.max(2, Math.floor(width / 80)))
    .filter((time) => time >= from && time <= to)
    .flatMap((time, i) => {
      const at = x + ((time - from) / (to - from)) * width;
      return [
        path(`M${at.toFixed(1)} ${TOP - 6}V${TOP + height - 4}`, "grid"),
        text(Math.min(at, x + width - 8), 12, i ? String(time) : `${time} ${unit}`, "mid"),
      ];
    });
}

/** One stage: hatched where it waits, a box for each pass. @param {TimelineAnswer} data @param {Pane} pane @param {number | null} rank @param {number} y */
function row(data, { from, to, x, width }, rank, y) {
  if (rank === null) return [];
  const tall = rowHeight(data.p) - (data.p > 8 ? 4 : 6);
  const passes = data.rows[rank];
  const X = (/** @type {number} */ time) => x + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * width;
  const drawn = [rect(x, y, X(Math.min(to, data.iteration_time)) - x, tall, "wait")];
  passes.forEach((pass, i) => {
    const [, , microbatch, start, end] = pass;
    if (end <= from || start >= to) return;
    const below = together(passes[i - 1], pass);
    const half = below || together(pass, passes[i + 1]);
    const look = lookOf(pass, data.p);
    const cut = start < from || end > to;
    const box = rect(
      X(start),
      below ? y + tall / 2 : y,
      X(end) - X(start) - 0.75,
      half ? tall / 2 : tall,
      cut ? `${look} cut` : look,
    );
    drawn.push(box);
    const words = microbatch === null ? "" : String(microbatch + 1);
    if (words && !cut && X(end) - X(start) > 6.5 * words.length + 4)
      drawn.push(
        text(
          (X(start) + X(end)) / 2,
          y + (half ? (below ? 0.75 : 0.25) * tall : tall / 2) + 4,
          words,
          `mid sm b on-${look}`,
        ),
      );
  });
  return drawn;
}

/** What the first and the last stage hold, in microbatches. @param {TimelineAnswer} data @param {Pane} pane @param {number} top */
function held(data, { from, to, x, width }, top) {
  const most = Math.max(
    1,
    ...data.stash[0].map(([, count]) => count),
    ...(data.stash.at(-1) ?? []).map(([, count]) => count),
  );
  const low = top + HELD;
  const X = (/** @type {number} */ time) => x + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * width;
  const Y = (/** @type {number} */ count) => low - (count / most) * (HELD - 14);
  const ranks = data.p > 1 ? [0, data.p - 1] : [0];
  const drawn = ranks.flatMap((rank) => {
    const before = data.stash[rank].filter(([time]) => time <= from).at(-1)?.[1] ?? 0;
    const steps = data.stash[rank].filter(([time]) => time > from && time <= to);
    return [
      path(
        `M${x} ${low}V${Y(before)}${steps.map(([time, count]) => `H${X(time).toFixed(1)}V${Y(count).toFixed(1)}`).join("")}H${X(to)}V${low}Z`,
        "area",
      ),
    ];
  });
  if (from === 0)
    drawn.push(
      text(x - 8, top + 18, figures(most), "end"),
      text(x - 8, low, "0", "end"),
      text(x + width / 2, low - 8, `microbatches held by stage 1, and by the last`, "mid halo"),
    );
  return drawn;
}

/** The times at which something begins, in order. @param {TimelineAnswer} data */
export const starts = ({ rows }) =>
  [...new Set(rows.flatMap((each) => each.map(([, , , start]) => start)))].sort((one, other) => one - other);

// A pipeline's timeline: stages as rows, time along, waiting hatched, what repeats folded, memory beneath, one playhead.
import { el, scrolled, svg } from "./elements.js";
import { figures, fitted, path, picture, rect, rounded, text, wide } from "./svg.js";

/** @type {Record<string, string>} */
const LOOKS = { F: "fwd", B: "bwd", I: "bwd", W: "bwd2", exchange: "msg", data_parallel: "msg" };
const NAMES = {
  fwd: "forward",
  fwd2: "forward, later chunks",
  bwd: "backward",
  bwd2: "weights’ gradient",
  msg: "messages",
  opt: "optimizer",
  wait: "waiting, the “bubble”",
};
const [WIDE, LEAST, LEAST_NARROW, MOST_ROWS] = [560, 6, 3, 16];
const [TOP, HELD] = [24, 62];

/**
 * @typedef {{ from: number, to: number, x: number, width: number, head: any }} Pane a part of the time, drawn somewhere
 * @typedef {{ data: TimelineAnswer, title: string, whole: number, unfolded?: boolean, onTime?: (time: number) => void }} Shown
 */

/** How a pass is drawn; with chunks, those after the first are lighter. @param {Pass} pass @param {number} p */
const lookOf = ([kind, stage], p) => (kind === "F" && (stage ?? 0) >= p ? "fwd2" : (LOOKS[kind] ?? "opt"));

/** What the looks mean, of those that timelines have. @param {TimelineAnswer[]} shown */
export function key(...shown) {
  const used = new Set(shown.flatMap(({ rows, p }) => rows.flatMap((row) => row.map((pass) => lookOf(pass, p)))));
  const box = (/** @type {string} */ look) =>
    svg("svg", { width: 18, height: 14, "aria-hidden": "true" }, rect(0, 0, 18, 14, look));
  const told = Object.entries(NAMES).filter(([look]) => used.has(look) || look === "wait");
  const rows = told.map(([look, words]) => el("li", box(look), words));
  return el("ul.key", rows, el("li", "numbers: microbatch"));
}

/** Whether two passes of a row are a fused pair. @param {Pass | undefined} pass @param {Pass | undefined} next */
const together = (pass, next) => pass && next && pass[3] === next[3] && pass[4] === next[4];

const rowHeight = (/** @type {number} */ p) => (p > 8 ? 27 : 40);

/** The stages that are drawn: of many the first and last four. @param {number} p @returns {(number | null)[]} */
const rowsOf = (p) =>
  p > MOST_ROWS ? [0, 1, 2, 3, null, p - 4, p - 3, p - 2, p - 1] : Array.from({ length: p }, (_, i) => i);

/** @param {number} from @param {number} to @param {number} x @param {number} width */
const pane = (from, to, x, width) => ({ from, to, x, width, head: path("", "play") });

/** A time within a pane, as a place. @param {Pane} pane @param {number} time */
const place = ({ from, to, x, width }, time) => x + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * width;

/** Draws a timeline in its place, with the memory below it where a playhead can read it; returns what moves the playhead. @param {any} where @param {Shown} shown */
export function draw(where, shown) {
  /** @type {Pane[]} */
  let panes = [];
  let now = -1;
  const height = rowsOf(shown.data.p).length * rowHeight(shown.data.p) + 8;
  const move = (/** @type {number} */ time) => {
    now = time;
    for (const pane of panes) {
      const line = `M${place(pane, time).toFixed(1)} ${TOP - 8}V${TOP + height + HELD + 6}`;
      pane.head.setAttribute("d", time >= pane.from && time <= pane.to ? line : "");
    }
  };
  fitted(where, (width) => {
    const [made, nodes] = laid(shown, width, height);
    panes = made;
    if (now >= 0) move(now);
    return nodes;
  });
  return move;
}

/** The panes, and what is drawn of them: all, or the start and the end. @param {Shown} shown @param {number} width @param {number} height @returns {[Pane[], any]} */
function laid(shown, width, height) {
  const { data, whole, title, unfolded } = shown;
  const narrow = width < WIDE;
  const left = narrow ? 26 : 62;
  const all = width - left - 2;
  const forward = data.rows[0].filter(([kind]) => kind === "F").map(([, , , start, end]) => end - start);
  const scale = Math.min(data.iteration_time, ...forward) / (0.95 + (narrow ? LEAST_NARROW : LEAST)); // of a pixel, at most
  const fits = whole / all <= scale;
  if (fits || unfolded) {
    const only = pane(0, whole, left, fits ? all : Math.ceil(whole / scale));
    const drawn = drawing(shown, [only], left + only.width + 2, height, title);
    return [[only], fits ? drawn : scrolled(`${title}, unfolded`, drawn)];
  }
  const gap = narrow ? 0 : 112;
  const across = narrow ? all : (all - gap) / 2;
  const span = Math.min(across * scale, whole / 2);
  const panes = [pane(0, span, left, across), pane(whole - span, whole, narrow ? left : left + across + gap, across)];
  const words = 2 * span < whole ? leftOut(data, span, whole - span) : ["goes on"];
  if (narrow) {
    const halves = panes.map((each, i) => drawing(shown, [each], width, height, `${title}, ${i ? "end" : "start"}`));
    return [panes, [halves[0], el("p.fold", words.join(" ")), halves[1]]];
  }
  const [middle, y] = [left + across + gap / 2, TOP + height / 2 - 40];
  const edges = [left + across + 8, left + across + gap - 8].map((x) => `M${x} ${TOP}V${TOP + height + HELD}`);
  const drawn = drawing(shown, panes, width, height, title);
  drawn.append(
    path(edges.join(""), "thin dash"),
    ...words.map((each, i) => text(middle, y + 18 * i, each, i < 2 ? "mid k b" : "mid")),
  );
  return [panes, drawn];
}

/** What a fold leaves out, in words, a line each. @param {TimelineAnswer} data @param {number} from @param {number} to */
function leftOut({ rows, unit }, from, to) {
  const inside = rows[0].map(([, , , start, end]) => Math.max(0, Math.min(end, to) - Math.max(start, from)));
  const busy = inside.reduce((sum, each) => sum + each, 0);
  const words = (/** @type {number} */ seconds) => `${figures(Math.max(0, seconds))} ${unit}`;
  return ["⋯", words(to - from), "alike;", "stage 1 waits", `${words(to - from - busy)} in all`];
}

/** @param {Shown} shown @param {Pane[]} panes @param {number} width @param {number} height @param {string} title */
function drawing({ data, onTime }, panes, width, height, title) {
  const tall = rowHeight(data.p);
  const ranks = rowsOf(data.p);
  const drawn = panes.map((pane) => [
    ticks(data, pane, height),
    ranks.map((rank, i) => rank !== null && row(data, pane, rank, TOP + i * tall)),
    onTime && held(data, pane, TOP + height),
  ]);
  const first = panes[0].x < 40 ? "1" : "Stage 1";
  const names = ranks.map((rank, i) =>
    text(panes[0].x - 8, TOP + (i + 0.5) * tall + 2, rank === null ? "⋯" : rank ? String(rank + 1) : first, "end k"),
  );
  const heads = panes.map(({ head }) => head);
  const made = picture(width, TOP + height + (onTime ? HELD + 22 : 0), title, drawn, names, heads);
  made.addEventListener("click", (/** @type {any} */ event) => {
    const x = event.clientX - made.getBoundingClientRect().left;
    const pane = panes.find((each) => x >= each.x && x <= each.x + each.width);
    if (pane) onTime?.(pane.from + ((x - pane.x) / pane.width) * (pane.to - pane.from));
  });
  return made;
}

/** @param {TimelineAnswer} data @param {Pane} pane @param {number} height */
const ticks = ({ unit }, pane, height) =>
  rounded(pane.from, pane.to, Math.max(2, Math.floor(pane.width / 80)))
    .filter((time) => time >= pane.from && time <= pane.to)
    .map((time, i) => {
      const at = place(pane, time);
      const words = i ? String(time) : `${time} ${unit}`;
      const line = path(`M${at.toFixed(1)} ${TOP - 6}V${TOP + height - 4}`, "grid");
      return [line, text(Math.min(at, pane.x + pane.width - 8), 12, words, "mid")];
    });

/** One stage: hatched where it waits, a box for each pass. @param {TimelineAnswer} data @param {Pane} pane @param {number} rank @param {number} y */
function row(data, pane, rank, y) {
  const tall = rowHeight(data.p) - (data.p > 8 ? 4 : 6);
  const passes = data.rows[rank];
  const drawn = [rect(pane.x, y, place(pane, data.iteration_time) - pane.x, tall, "wait")];
  if (rank === 0) drawn.push(waits(data, pane, y + tall / 2 + 4));
  passes.forEach((pass, i) => {
    const [, , microbatch, start, end] = pass;
    if (end <= pane.from || start >= pane.to) return;
    const below = together(passes[i - 1], pass);
    const half = below || together(pass, passes[i + 1]);
    const look = lookOf(pass, data.p);
    const cut = start < pane.from || end > pane.to;
    const [from, to, high] = [place(pane, start), place(pane, end), half ? tall / 2 : tall];
    const top = below ? y + high : y;
    drawn.push(rect(from, top, to - from - 0.75, high, cut ? `${look} cut` : look));
    const words = microbatch === null ? "" : String(microbatch + 1);
    if (words && !cut && to - from > 6.5 * words.length + 4)
      drawn.push(text((from + to) / 2, top + high / 2 + 4, words, `mid sm b on-${look}`));
  });
  return drawn;
}

/** How long the first stage waits at once, said where that is, if it is wide enough. @param {TimelineAnswer} data @param {Pane} pane @param {number} y */
function waits({ rows: [passes], unit }, pane, y) {
  const gaps = passes.map(([, , , start], i) => [i ? passes[i - 1][4] : 0, start]);
  const [from, to] = gaps.reduce((most, gap) => (gap[1] - gap[0] > most[1] - most[0] ? gap : most), [0, 0]);
  const words = `waits ${figures(to - from)} ${unit}`;
  const [left, right] = [place(pane, from), place(pane, to)];
  return right - left > wide(words) + 16 && text((left + right) / 2, y, words, "k mid halo");
}

/** What the first and the last stage hold, in microbatches. @param {TimelineAnswer} data @param {Pane} pane @param {number} top */
function held({ stash, p }, pane, top) {
  const shown = [...new Set([stash[0], stash[p - 1]])];
  const most = Math.max(1, ...shown.flatMap((steps) => steps.map(([, count]) => count)));
  const low = top + HELD;
  const Y = (/** @type {number} */ count) => (low - (count / most) * (HELD - 14)).toFixed(1);
  const drawn = shown.map((steps) => {
    const before = steps.findLast(([time]) => time <= pane.from)?.[1] ?? 0;
    const inside = steps.filter(([time], i) => time > pane.from && time <= pane.to && steps[i + 1]?.[0] !== time);
    const along = inside.map(([time, count]) => `H${place(pane, time).toFixed(1)}V${Y(count)}`);
    return path(`M${pane.x} ${low}V${Y(before)}${along.join("")}H${place(pane, pane.to)}V${low}Z`, "area");
  });
  const words = p > 1 ? "held by stage 1, and by the last, in microbatches" : "microbatches held";
  const scale = [
    text(pane.x - 8, top + 18, figures(most), "end"),
    text(pane.x - 8, low, "0", "end"),
    text(pane.x, low + 18, words),
  ];
  return [drawn, pane.from === 0 && scale];
}

/** The times at which something begins, in order. @param {TimelineAnswer} data */
export const starts = ({ rows }) =>
  [...new Set(rows.flatMap((each) => each.map(([, , , start]) => start)))].sort((one, other) => one - other);

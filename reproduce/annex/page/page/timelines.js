// The view of timelines: one schedule, or two of them one above the other, which are moved together.
import { byId, element, option, selectOf } from "./elements.js";
import { change, cluster, configure, current, newest, offered, update } from "./page.js";
import { ask } from "./python.js";
import { COLORS, NAMES, TimelineView, together } from "./timeline.js";

export function refresh() {
  const { configuration, beside } = current();
  selectOf("schedule-a").value = String(configuration.schedule ?? "");
  selectOf("schedule-b").value = beside;
  const schedules = [String(configuration.schedule ?? ""), ...(beside ? [beside] : [])];
  const asked = schedules.map((schedule) => ({ configuration: { ...configuration, schedule }, ...cluster() }));
  const answered = Promise.all(asked.map((given) => ask("timeline", given)));
  return newest("timeline", answered, (answers) => show(asked, answers));
}

/** @typedef {{ configuration: Configuration, cluster: string, changes: object, text: string }} Asked */

/** @param {Asked[]} asked @param {TimelineAnswer[]} answers */
function show(asked, answers) {
  byId("timelines").replaceChildren();
  const kinds = new Set(answers.flatMap(({ rows }) => rows.flatMap((row) => row.map(([kind]) => kind))));
  const shown = Object.entries(NAMES).filter(([kind]) => kinds.has(kind) || kind === "held");
  const waits = element("li", {}, element("span", { "data-part": "bubble" }), "waits (bubble)");
  byId("legend").replaceChildren(...shown.map(([kind, name]) => legend(kind, name)), waits);
  const say = (/** @type {string} */ text) => {
    byId("hover").textContent = text;
  };
  /** @type {TimelineView[]} */
  const views = [];
  const follow = (/** @type {TimelineView} */ from, /** @type {number} */ begin, /** @type {number} */ end) => {
    for (const view of views)
      if (view !== from) view.show(begin * view.data.iteration_time, end * view.data.iteration_time);
  };
  answers.forEach((answer, i) => {
    const idle = `idle ${(100 * answer.idle_fraction).toFixed(1)}%`;
    const title = `${asked[i].configuration.schedule || "default schedule"}: ${answer.iteration_time.toFixed(3)} s, ${idle}`;
    const pick = picker(asked[i], answer, say);
    byId("timelines").append(element("h2", {}, title));
    views.push(new TimelineView(byId("timelines"), title, answer, pick, follow));
    byId("timelines").append(element("p", {}, answer.waits));
  });
}

/**
 * What is said of a place of a timeline that is pointed at or tapped.
 *
 * @param {Asked} given
 * @param {TimelineAnswer} answer
 * @param {(text: string) => void} say
 */
export function picker(given, { rows }, say) {
  let before = "";
  /** @type {import("./timeline.js").OnPick} */
  return (rank, place, time) => {
    const pass = rows[rank][place];
    if (pass && pass[3] <= time) {
      const [, , , start, end] = pass;
      const next = rows[rank][place + 1];
      const passes = together(pass, next) ? `${named(pass)} with ${named(next)}` : named(pass);
      before = "";
      return say(`Rank ${rank}: ${passes}, ${(1e3 * (end - start)).toFixed(2)} ms from ${start.toFixed(3)} s.`);
    }
    if (before === `${rank} ${place}`) return;
    before = `${rank} ${place}`;
    void update("wait", "wait", { ...given, rank, place }, ({ sentence }) => before && say(sentence));
  };
}

/** @param {Pass} pass */
function named([kind, stage, microbatch]) {
  return (NAMES[kind] ?? kind) + (stage === null ? "" : ` of stage ${stage}, microbatch ${microbatch}`);
}

/** @param {string} kind @param {string} name */
function legend(kind, name) {
  const square = element("span");
  square.style.background = COLORS[kind];
  return element("li", {}, square, name);
}

export function fill() {
  const without = { "schedule-a": "default for v", "schedule-b": "nothing" };
  for (const [id, nothing] of Object.entries(without))
    selectOf(id).replaceChildren(option("", nothing), ...(offered()?.schedules ?? []).map((name) => option(name)));
  selectOf("schedule-a").value = String(current().configuration.schedule ?? "");
  selectOf("schedule-b").value = current().beside;
}

export function listen() {
  selectOf("schedule-a").addEventListener("change", () => configure({ schedule: selectOf("schedule-a").value }));
  selectOf("schedule-b").addEventListener("change", () => change({ beside: selectOf("schedule-b").value }));
}

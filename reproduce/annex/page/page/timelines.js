// The view of timelines: one schedule, or two of them on one scale, with a playhead that says who works and who waits.
import { button, byId, choices, element, facts, inputOf, labelled, option, selectOf } from "./elements.js";
import { exports } from "./exports.js";
import { called } from "./machine.js";
import { change, cluster, configure, current, fail, newest, offered, update } from "./page.js";
import { ask } from "./python.js";
import { figures } from "./svg.js";
import { draw, key, looks, starts } from "./timeline.js";

const OFTEN = { "1f1b": "Default (1F1B)", interleaved: "Interleaved", "zb-h1": "Zero bubble" };
const PLAY_MS = 12_000; // a whole iteration
/** @type {TimelineAnswer[]} */
let shown = [];
/** @type {((time: number) => void)[]} */
let heads = [];
/** @type {number[]} */
let moments = [];
let [now, playing, unfolded, own] = [0, 0, false, ""];

export function make() {
  const slider = element("input", {
    id: "time",
    type: "range",
    min: 0,
    step: "any",
    value: 0,
    "aria-label": "Time in the iteration",
  });
  slider.addEventListener("input", () => seek(slider.valueAsNumber));
  slider.addEventListener("keydown", press);
  const file = element("input", {
    id: "own",
    type: "file",
    accept: ".csv,.txt",
    class: "off",
    tabindex: -1,
    "aria-label": "A schedule of your own",
  });
  file.addEventListener("change", () => void drop(file.files?.[0]));
  const view = byId("view-timeline");
  view.addEventListener("dragover", (event) => event.preventDefault());
  view.addEventListener("drop", (event) => {
    event.preventDefault();
    void drop(event.dataTransfer?.files[0]);
  });
  view.append(
    element(
      "div",
      { class: "head" },
      element("h1", {}, "One iteration, pass by pass"),
      element("p", { class: "lede", id: "timeline-lede" }),
    ),
    element(
      "section",
      { "aria-label": "Timeline" },
      element(
        "div",
        { class: "row ends" },
        segments(),
        element(
          "span",
          { class: "row tight" },
          button("Your own schedule (CSV)", () => file.click()),
          file,
          button("Same in What if", () => change({ view: "whatif" })),
        ),
      ),
      element("div", { class: "fields" }, labelled("Any schedule", "schedule-a"), labelled("Beside it", "schedule-b")),
      element("div", { id: "timeline-key" }),
      element("figure", { class: "titled", id: "timelines" }),
      element(
        "div",
        { class: "player" },
        button("▶", play, { class: "round", id: "play", "aria-label": "Play" }),
        slider,
        element("output", { class: "num", id: "clock", for: "time" }),
      ),
      element("div", { class: "said", id: "moment", role: "status" }, element("b"), element("span")),
      element(
        "p",
        { class: "row tight" },
        button("Unfold the middle", () => ((unfolded = !unfolded), redraw()), { id: "unfold" }),
        ...exports(
          () => byId("timelines"),
          () => "timeline",
        ),
      ),
    ),
    element(
      "section",
      { "aria-labelledby": "look" },
      element("h2", { id: "look" }, "What to look for"),
      element("div", { id: "timeline-facts" }),
      element(
        "p",
        {},
        element("a", { href: "#view=lessons&lesson=bubble" }, "Why a pipeline waits, in three minutes →"),
      ),
    ),
  );
}

function segments() {
  const made = Object.entries(OFTEN).map(([name, words]) => {
    const input = element("input", { type: "radio", name: "schedule", value: name });
    input.addEventListener("change", () => void choose(name));
    return element("label", {}, input, words);
  });
  return element("div", { class: "seg", role: "radiogroup", "aria-label": "Schedule" }, ...made);
}

/** Another schedule, with the chunks that it needs. @param {string} schedule */
async function choose(schedule) {
  own = "";
  await ask("scheduled", { configuration: current().configuration, name: schedule }).then(
    ({ changes }) => configure(changes),
    (error) => fail(error.message),
  );
}

export function refresh() {
  const { configuration, beside } = current();
  const usual = Number(configuration.v ?? 1) > 1 ? "interleaved" : "1f1b";
  const schedule = String(configuration.schedule || usual);
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll(".seg input")))
    input.checked = input.value === schedule && !own;
  selectOf("schedule-a").value = schedule;
  selectOf("schedule-b").value = beside;
  if (own) return;
  const first = ask("timeline", { configuration, ...cluster() });
  const second = beside
    ? [
        ask("scheduled", { configuration, name: beside }).then(({ changes }) =>
          ask("timeline", { configuration: { ...configuration, ...changes }, ...cluster() }),
        ),
      ]
    : [];
  return newest("timeline", Promise.all([first, ...second]), show);
}

/** @param {TimelineAnswer[]} answers */
function show(answers) {
  shown = answers;
  const [first] = answers;
  moments = starts(first);
  now = Math.min(now || 0.02 * first.iteration_time, first.iteration_time);
  inputOf("time").max = String(first.iteration_time);
  const microbatches = 1 + Math.max(...first.rows[0].map(([, , microbatch]) => microbatch ?? 0));
  const where = own ? "" : ` on ${called()}`;
  byId("timeline-lede").textContent =
    `${first.p} stages, ${microbatches} microbatches, ${figures(first.iteration_time)} ${first.unit}${where}. What does each stage do, and for whom does it wait?`;
  byId("timeline-facts").replaceChildren(
    facts(first.facts.map(({ name, value, unit, said }) => [name, value, unit, said])),
  );
  byId("timeline-key").replaceChildren(key(new Set(answers.flatMap((answer) => [...looks(answer)]))));
  redraw();
}

function redraw() {
  const whole = Math.max(...shown.map(({ iteration_time }) => iteration_time));
  const { configuration, beside } = current();
  const names = [
    own || configuration.schedule || (Number(configuration.v ?? 1) > 1 ? "interleaved" : "1f1b"),
    beside,
  ].map((name) => offered()?.schedules[String(name)] ?? String(name));
  byId("unfold").textContent = unfolded ? "Fold the middle" : "Unfold the middle";
  const places = shown.map(() => element("div", { class: "plot" }));
  byId("timelines").replaceChildren(
    ...places.flatMap((place, i) =>
      shown.length > 1
        ? [element("h3", {}, `${names[i]}: ${figures(shown[i].iteration_time)} ${shown[i].unit}`), place]
        : [place],
    ),
  );
  heads = places.map((place, i) =>
    draw(place, {
      data: shown[i],
      title: `Timeline, ${names[i]}, ${shown[i].p} stages`,
      whole,
      unfolded,
      onTime: seek,
    }),
  );
  seek(now);
}

/** Move the playhead, and say what happens there, unless it plays. @param {number} time */
function seek(time) {
  now = time;
  inputOf("time").value = String(time);
  const unit = shown[0]?.unit ?? "s";
  inputOf("time").setAttribute("aria-valuetext", `${time.toFixed(2)} ${unit}`);
  byId("clock").replaceChildren(element("b", {}, time.toFixed(2)), element("span", { class: "u" }, ` ${unit}`));
  for (const head of heads) head(time);
  if (playing || current().view !== "timeline") return;
  if (own) return say(working(time), "");
  void update(
    "moment",
    "moment",
    { configuration: current().configuration, ...cluster(), time },
    ({ sentence, detail }) => say(sentence, detail),
  );
}

/** @param {string} sentence @param {string} detail */
function say(sentence, detail) {
  const [first, second] = byId("moment").children;
  first.textContent = sentence;
  second.textContent = detail;
}

/** Of a schedule of one's own: which stages work. @param {number} time */
function working(time) {
  const ranks = shown[0].rows.flatMap((row, rank) =>
    row.some(([, , , start, end]) => start <= time && time < end) ? [rank + 1] : [],
  );
  return `At ${time.toFixed(1)} units ${ranks.length} of ${shown[0].p} stages work${ranks.length ? `: ${ranks.join(", ")}` : ""}`;
}

/** @param {KeyboardEvent} event */
function press(event) {
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
  if (event.key === " ") play();
  else if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(shown[0].iteration_time);
  else if (step) {
    const at =
      step > 0 ? moments.findIndex((each) => each > now + 1e-9) : moments.findLastIndex((each) => each < now - 1e-9);
    const next = (at < 0 ? (step > 0 ? moments.length - 1 : 0) : at) + step - Math.sign(step);
    seek(moments[Math.min(Math.max(next, 0), moments.length - 1)]);
  } else return;
  event.preventDefault();
}

/** Let the playhead run, or stop it; nothing is said meanwhile. */
function play() {
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    byId("play").textContent = "▶";
    byId("play").setAttribute("aria-label", "Play");
    seek(now);
  };
  if (playing) return stop();
  const [whole, from] = [shown[0].iteration_time, performance.now()];
  const begin = now >= whole ? 0 : now;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return seek(whole);
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Stop");
  const frame = (/** @type {number} */ at) => {
    const time = begin + ((at - from) / PLAY_MS) * whole;
    if (time >= whole || current().view !== "timeline") return ((now = Math.min(time, whole)), stop());
    playing = requestAnimationFrame(frame);
    seek(time);
  };
  playing = requestAnimationFrame(frame);
}

/** A schedule of one's own from a file. @param {File | undefined} file */
async function drop(file) {
  if (!file) return;
  const text = await file.text();
  await update("timeline", "own", { text }, (answer) => {
    own = file.name;
    show([answer]);
  });
}

export function fill() {
  const names = offered()?.schedules ?? {};
  choices("schedule-a", names, String(current().configuration.schedule || "1f1b"));
  choices("schedule-b", names, "");
  selectOf("schedule-b").prepend(option("", "nothing"));
  selectOf("schedule-b").value = current().beside;
  selectOf("schedule-a").addEventListener("change", () => void choose(selectOf("schedule-a").value));
  selectOf("schedule-b").addEventListener("change", () => change({ beside: selectOf("schedule-b").value }));
  if (shown.length && current().view === "timeline") void refresh();
}

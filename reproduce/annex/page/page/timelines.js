// The view of timelines: one schedule, or two of them on one scale, with a playhead that says who works and who waits.
import { button, byId, choices, download, el, facts, field, fill as put, link } from "./elements.js";
import { called } from "./machine.js";
import { change, cluster, configure, current, fail, newest, offered, point, update } from "./page.js";
import { ask } from "./python.js";
import { exports, figures } from "./svg.js";
import { draw, key, starts } from "./timeline.js";

const OFTEN = { "1f1b": "Default (1F1B)", interleaved: "Interleaved", "zb-h1": "Zero bubble" };
const PLAY_MS = 12_000; // a whole iteration
/** @type {TimelineAnswer[]} */
let shown = [];
/** @type {((time: number) => void)[]} */
let heads = [];
/** @type {number[]} */
let moments = [];
let [now, playing, unfolded, own, csv] = [0, 0, false, "", ""]; // `csv`: the text of one's own schedule

export function make() {
  const time = { type: "range", min: 0, step: "any", value: 0, "aria-label": "Time in the iteration" };
  const slider = el("input#time", { ...time, input: () => seek(slider.valueAsNumber), keydown: press });
  const hidden = { type: "file", accept: ".csv,.txt", tabindex: -1, "aria-label": "A schedule of your own" };
  const file = el("input.off#own", { ...hidden, change: () => drop(file.files[0]) });
  const view = byId("view-timeline");
  view.addEventListener("dragover", (/** @type {any} */ event) => event.preventDefault());
  view.addEventListener("drop", (/** @type {any} */ event) => {
    event.preventDefault();
    void drop(event.dataTransfer.files[0]);
  });
  const often = (/** @type {string[]} */ [value, words]) =>
    button(words, () => choose(value), ".chip", { "data-schedule": value });
  const unfold = () => {
    unfolded = !unfolded;
    redraw();
  };
  const beside = el("select#schedule-b", { change: ({ target }) => change({ beside: target.value }) });
  view.append(
    el("div.head", el("h1", "One iteration, pass by pass"), el("p.lede#timeline-lede")),
    el(
      "section",
      { "aria-label": "Timeline" },
      el(
        "div.row.ends",
        el(
          "div.chips#schedules",
          { role: "group", "aria-label": "Schedule" },
          Object.entries(OFTEN).map(often),
          el("select.chip#schedule-a", {
            "aria-label": "Another schedule",
            change: ({ target }) => choose(target.value),
          }),
        ),
        el(
          "span.row.tight",
          button("Your own schedule (CSV)", () => file.click()),
          file,
          link("#view=whatif", "Same in What if"),
        ),
      ),
      el("div.fields", field("Compare with", beside)),
      el("div#timeline-key"),
      el("figure.titled#timelines"),
      el(
        "div.player",
        button("▶", play, ".round#play", { "aria-label": "Play" }),
        slider,
        el("output.num#clock", { for: "time" }),
      ),
      el("div.said#moment", { role: "status" }, el("b"), el("span")),
      el(
        "p.row.tight",
        button("Unfold the middle", unfold, ".quiet#unfold"),
        exports("timelines", () => "timeline"),
        button("Trace file", trace),
      ),
    ),
    el(
      "section",
      { "aria-labelledby": "look" },
      el("h2#look", "What to look for"),
      el("dl.facts#timeline-facts"),
      el("p", link("#view=lessons&lesson=bubble", "Why a pipeline waits, in three minutes →", "")),
    ),
  );
}

/** Another schedule, with the chunks that it needs. @param {string} schedule */
async function choose(schedule) {
  own = "";
  await ask("scheduled", { configuration: current().configuration, name: schedule }).then(
    ({ changes }) => configure(changes),
    (error) => fail(error.message),
  );
}

const schedule = () => {
  const { schedule: named, v } = current().configuration;
  return String(named || (Number(v ?? 1) > 1 ? "interleaved" : "1f1b"));
};

export function refresh() {
  const { configuration, beside } = current();
  const name = own ? "" : schedule();
  for (const chip of byId("schedules").querySelectorAll("button"))
    chip.setAttribute("aria-pressed", chip.dataset.schedule === name);
  byId("schedule-a").value = name in OFTEN ? "" : name;
  byId("schedule-a").toggleAttribute("data-on", name && !(name in OFTEN));
  byId("schedule-b").value = beside;
  if (own) return;
  const second = async () => {
    const { changes } = await ask("scheduled", { configuration, name: beside });
    return ask("timeline", { configuration: { ...configuration, ...changes }, ...cluster() });
  };
  return newest("timeline", Promise.all([ask("timeline", point()), ...(beside ? [second()] : [])]), show);
}

/** @param {TimelineAnswer[]} answers */
function show(answers) {
  shown = answers;
  const [{ p, rows, iteration_time: whole, unit, facts: looked }] = answers;
  moments = starts(answers[0]);
  now = Math.min(now || 0.02 * whole, whole);
  byId("time").max = whole;
  const m = 1 + Math.max(...rows[0].map(([, , microbatch]) => microbatch ?? 0));
  const size = `${p} stages, ${m} microbatches, ${figures(whole)} ${unit}${own ? "" : ` on ${called()}`}`;
  byId("timeline-lede").textContent = `${size}. What does each stage do, and for whom does it wait?`;
  facts("timeline-facts", looked);
  put("timeline-key", key(...answers));
  redraw();
}

function redraw() {
  const whole = Math.max(...shown.map(({ iteration_time }) => iteration_time));
  const names = [own || schedule(), current().beside].map((name) => offered()?.schedules[name] ?? name);
  byId("unfold").textContent = unfolded ? "Fold the middle" : "Unfold the middle";
  const places = shown.map(() => el("div.plot"));
  const title = (/** @type {TimelineAnswer} */ { iteration_time, unit }, /** @type {number} */ i) =>
    shown.length > 1 && el("h3", `${names[i]}: ${figures(iteration_time)} ${unit}`);
  const parts = shown.map((data, i) => [title(data, i), places[i]]);
  put("timelines", parts);
  heads = shown.map((data, i) =>
    draw(places[i], { data, title: `Timeline, ${names[i]}, ${data.p} stages`, whole, unfolded, onTime: seek }),
  );
  seek(now);
}

/** Move the playhead, and say what happens there, unless it plays. @param {number} time */
function seek(time) {
  now = time;
  byId("time").value = time;
  const unit = shown[0]?.unit ?? "s";
  byId("time").setAttribute("aria-valuetext", `${time.toFixed(2)} ${unit}`);
  put("clock", el("b", time.toFixed(2)), el("span.u", ` ${unit}`));
  for (const head of heads) head(time);
  if (playing || current().view !== "timeline") return;
  const say = (/** @type {Record<"sentence" | "detail", string>} */ { sentence, detail }) => {
    const [first, second] = byId("moment").children;
    first.textContent = sentence;
    second.textContent = detail;
  };
  void update("moment", "moment", { ...point(), time, csv: own && csv }, say);
}

/** @param {any} event */
function press(event) {
  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
  const step = /** @type {Record<string, number>} */ (steps)[event.key];
  if (event.key === " ") play();
  else if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(shown[0].iteration_time);
  else if (step) {
    const before = moments.filter((each) => each < now - 1e-9).length; // those up to now
    const passed = moments.filter((each) => each <= now + 1e-9).length;
    const to = step > 0 ? passed + step - 1 : before + step;
    seek(moments[Math.min(Math.max(to, 0), moments.length - 1)]);
  } else return;
  event.preventDefault();
}

/** @param {string} sign @param {string} words */
const playButton = (sign, words) => {
  byId("play").textContent = sign;
  byId("play").setAttribute("aria-label", words);
};

/** Let the playhead run, or stop it; nothing is said meanwhile. */
function play() {
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    playButton("▶", "Play");
    seek(now);
  };
  if (playing) return stop();
  const [whole, from] = [shown[0].iteration_time, performance.now()];
  const begin = now >= whole ? 0 : now;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return seek(whole);
  playButton("❚❚", "Stop");
  const frame = (/** @type {number} */ at) => {
    const time = begin + ((at - from) / PLAY_MS) * whole;
    if (time >= whole || current().view !== "timeline") {
      now = Math.min(time, whole);
      return stop();
    }
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
    [own, csv] = [file.name, text];
    show([answer]);
  });
}

/** Save the timeline for Perfetto. */
const trace = () =>
  update("trace", "trace", { ...point(), csv: own && csv }, ({ trace: text }) =>
    download("trace.json", text, "application/json"),
  );

export function fill() {
  const names = offered()?.schedules ?? {};
  const others = Object.entries(names).filter(([name]) => !(name in OFTEN));
  choices("schedule-a", { "": "More…", ...Object.fromEntries(others) }, schedule() in OFTEN ? "" : schedule());
  choices("schedule-b", { "": "nothing", ...names }, current().beside);
  if (shown.length && current().view === "timeline") void refresh();
}

// The view of a configuration of one's own: four choices, an answer, the layout, techniques, and what follows.
import * as best from "./best.js";
import * as comparison from "./comparison.js";
import {
  button,
  byId,
  choices,
  copy,
  download,
  element,
  facts,
  inputOf,
  labelled,
  more,
  option,
  selectOf,
  tell,
  valued,
} from "./elements.js";
import * as form from "./form.js";
import { layout } from "./layout.js";
import { bars, interval, lookOf, stack } from "./bars.js";
import { picker } from "./machine.js";
import { change, cluster, configure, current, isShipped, offered, update } from "./page.js";
import { ask } from "./python.js";
import { figures, fitted } from "./svg.js";
import * as sweep from "./sweep.js";

/** @type {WhatIfAnswer | undefined} */
let shown;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let said;
const GB = 1e9;

/** @param {string} words @param {string} id */
const number = (words, id) =>
  element(
    "label",
    { class: "field", id: `${id}-field` },
    element("span", {}, words),
    element("input", { id, type: "number", inputmode: "numeric", min: 1 }),
    element("span", { class: "why", role: "alert" }),
  );

export function make() {
  const command = button("Save for the command line", save, { id: "export-json" });
  byId("view-whatif").append(
    element(
      "div",
      { class: "head" },
      element("h1", {}, "What would it take to train your model?"),
      element(
        "p",
        { class: "lede" },
        "Four choices give an answer. Everything else has a good default, and can be changed below.",
      ),
    ),
    element(
      "div",
      { class: "bench" },
      element(
        "section",
        { "aria-label": "Your choices", class: "ask", id: "ask" },
        element(
          "div",
          { class: "fields" },
          labelled("Model", "model", "field full"),
          picker("whatif"),
          number("GPUs", "gpus"),
          number("Batch, sequences", "batch"),
        ),
        element(
          "div",
          { class: "row" },
          button("Find the best layout", best.find, { class: "btn go", id: "best" }),
          labelled("Start from an example", "scenario", "field off"),
        ),
        element("p", { class: "row tight", id: "scenarios" }),
      ),
      element(
        "section",
        { "aria-label": "Layout and techniques", class: "tune" },
        element("h2", {}, "Layout"),
        element("div", { id: "layout", class: "plot" }),
        element("div", { id: "steps" }),
        element("h2", {}, "Techniques"),
        element("div", { class: "chips", id: "chips" }),
        element("small", { id: "chip-why", role: "status" }),
        element(
          "div",
          { id: "whatif-details" },
          more("More of the layout", "more-layout"),
          more("The model in detail", "more-model"),
        ),
      ),
      element(
        "div",
        { class: "told" },
        element("section", { "aria-label": "Answer", class: "card", id: "answer" }),
        element(
          "section",
          { class: "limits", id: "limited" },
          element("h2", {}, "What limits it"),
          element("p", {}, button("Try one change after another", limits, { class: "btn", id: "limits" })),
        ),
      ),
    ),
    element("section", { id: "plans" }),
    element("section", { id: "comparison" }),
    sweep.section(),
    element(
      "p",
      { class: "row tight" },
      command,
      button("Copy command", ({ target } = /** @type {any} */ (event)) =>
        copy(target, "reproduce simulate points.json"),
      ),
    ),
    element(
      "p",
      { class: "dock", id: "dock" },
      element("b", { class: "num" }),
      element("span", { class: "u num" }),
      element("a", { class: "quiet", href: "#view=whatif" }, "Change"),
    ),
    element("p", { class: "off", role: "status", id: "changed" }),
  );
  byId("dock")
    .querySelector("a")
    ?.addEventListener("click", () => byId("ask").scrollIntoView());
  selectOf("model").addEventListener("change", () => {
    const sizes = offered()?.models[selectOf("model").value];
    if (sizes) change({ configuration: { ...layoutOf(), ...sizes } });
  });
  for (const [id, what] of [
    ["gpus", "gpus"],
    ["batch", "batch"],
  ])
    inputOf(id).addEventListener("input", () => void choose(id, what));
}

/** The configuration without what belongs to the model. */
function layoutOf() {
  const fields = offered()?.fields ?? {};
  return Object.fromEntries(
    Object.entries(current().configuration).filter(([name]) => fields[name]?.group !== "Model"),
  );
}

/** Another number of GPUs or sequences: taken if legal, else a sentence at the field. @param {string} id @param {string} what */
async function choose(id, what) {
  const value = inputOf(id).valueAsNumber;
  if (!(value > 0)) return wrong(id, "Needs a number.");
  const { changes, wrong: why } = await ask("chosen", { configuration: current().configuration, [what]: value });
  if (value !== inputOf(id).valueAsNumber) return;
  wrong(id, why ?? "");
  if (changes) configure(changes);
}

/** @param {string} id @param {string} why */
function wrong(id, why) {
  byId(`${id}-field`).classList.toggle("bad", Boolean(why));
  const said = byId(`${id}-field`).querySelector(".why");
  if (said) said.textContent = why;
  byId("answer").classList.toggle("stale", Boolean(why));
}

const asked = () => ({
  configuration: current().configuration,
  ...cluster(),
  tokens: current().tokens,
  price: current().price,
});

export function refresh() {
  form.show();
  if (offered()) selectOf("model").value = form.modelShown();
  best.refresh();
  const answer = update("whatif", "what_if", asked(), show);
  comparison.refresh();
  sweep.refresh();
  return answer.then((how) => how === "failed" && byId("answer").classList.add("stale"));
}

/** @param {WhatIfAnswer} answer */
function show(answer) {
  if (answer.status === "invalid") {
    byId("answer").classList.add("stale");
    return (
      byId("ask").querySelector(".note")?.remove(),
      byId("ask").append(element("p", { class: "note error", role: "alert" }, answer.reason ?? ""))
    );
  }
  byId("ask").querySelector(".note")?.remove();
  shown = answer;
  const { sizes } = answer.knobs;
  for (const [id, value] of [
    ["gpus", answer.gpus],
    ["batch", sizes.B],
  ]) {
    if (inputOf(id) !== document.activeElement) inputOf(id).value = String(value);
    wrong(id, "");
  }
  byId("answer").replaceChildren(...told(answer));
  byId("answer").classList.remove("stale");
  const perNode = answer.per_node ?? 8;
  fitted(byId("layout"), (width) => layout(sizes, answer.knobs.layers, perNode, width));
  byId("steps").replaceChildren(...steps(answer));
  byId("chips").replaceChildren(...answer.knobs.chips.map(chip));
  tell("more-layout", `microbatch ${sizes.b}`);
  tell(
    "more-model",
    `${answer.knobs.layers} layers, hidden size ${Number(current().configuration.hidden).toLocaleString("en")}`,
  );
  const [days, rest] = byId("dock").children;
  days.textContent = headline(answer).slice(0, 2).join(" ");
  rest.textContent = `${(100 * answer.model_flops_utilization).toFixed(0)}% · ${figures(answer.peak_memory / GB)} of ${figures(answer.capacity / GB)} GB`;
  clearTimeout(said);
  said = setTimeout(() => (byId("changed").textContent = sentence(answer)), 500);
}

/** The one number: too much memory, days of a run, or seconds. @param {WhatIfAnswer} answer @returns {[string, string, string, Interval | undefined]} */
function headline({ status, peak_memory, capacity, run, iteration_time, intervals }) {
  if (status === "oom")
    return [`+${figures((peak_memory - capacity) / GB)}`, "GB too much", "The fullest GPU needs", undefined];
  if (run)
    return [
      figures(run.run_time),
      "days",
      `Training on ${current().tokens.replace(/T$/, " trillion").replace(/B$/, " billion")} tokens takes`,
      run.intervals.run_time,
    ];
  return [figures(Number(iteration_time)), "s", "An iteration takes", intervals?.iteration_time];
}

/** @param {WhatIfAnswer} answer */
function sentence(answer) {
  const [value, unit, before, sure] = headline(answer);
  return `${before} ${value} ${unit}${sure ? `, 9 of 10 in ${figures(sure.low)} to ${figures(sure.high)}` : ""}.`;
}

/** @param {WhatIfAnswer} answer */
function told(answer) {
  const [value, unit, before, sure] = headline(answer);
  const { status, phases, memory, peak_memory, capacity, iteration_time, helps = [] } = answer;
  const big = element("p", { class: status === "oom" ? "big no" : "big" }, ...valued(value, unit));
  const made = /** @type {HTMLElement[]} */ ([]);
  made.push(
    element(
      "div",
      { class: "answer" },
      element("p", { class: "over" }, before),
      big,
      ...(sure
        ? [
            interval(answer, value, sure, unit),
            element(
              "p",
              { class: "note" },
              "9 of 10 real runs are expected in the band, of programs whose runs were scored.",
            ),
          ]
        : []),
    ),
  );
  if (status === "oom") {
    const most = `${figures(peak_memory / GB)} GB are needed; ${figures(capacity / GB)} GB can be used.`;
    const chips = helps.map((/** @type {any} */ { name, changes, memory: needs }) =>
      button(`${name}: ${figures(needs / GB)} GB, fits`, () => configure(changes), { class: "chip" }),
    );
    made.push(
      element("p", { class: "note" }, most),
      element(
        "p",
        { class: "chips", id: "helps" },
        ...chips,
        button("Find a layout that fits", best.find, { class: "chip" }),
      ),
    );
  }
  made.push(facts(factsOf(answer)));
  const useful = phases
    .filter((/** @type {any} */ { name }) => ["forward", "backward", "embedding_and_logits"].includes(name))
    .reduce((/** @type {number} */ sum, /** @type {any} */ { seconds }) => sum + seconds, 0);
  const time = phases.map((/** @type {any} */ { name, label, seconds }) => ({
    look: lookOf(name),
    label,
    size: seconds,
  }));
  const space = memory.map((/** @type {any} */ { name, label, bytes }) => ({
    look: lookOf(name),
    label,
    size: bytes / GB,
  }));
  const spare = (capacity - peak_memory) / GB;
  const fits = spare >= 0 ? `it fits, ${figures(spare)} GB to spare` : `${figures(-spare)} GB too much`;
  made.push(
    titled(
      `Where an iteration’s ${figures(Number(iteration_time))} s go`,
      `${((100 * useful) / Number(iteration_time)).toFixed(0)}% trains the model`,
      (width) => stack(time, Number(iteration_time), "s", width),
    ),
    titled("The fullest GPU’s memory", fits, (width) => stack(space, capacity / GB, "GB", width)),
    element(
      "p",
      { class: "row tight" },
      button("Keep to compare", comparison.keep, { id: "keep" }),
      element("a", { class: "quiet", href: "#view=timeline" }, "See the timeline"),
      tokens(),
    ),
  );
  return made;
}

/** Tokens of the run and the price of a GPU hour, which one may change. */
function tokens() {
  const made = button("Change tokens and price", () => {
    const field = (/** @type {string} */ words, /** @type {"tokens" | "price"} */ name) => {
      const input = element("input", { id: name, value: current()[name] });
      input.addEventListener("change", () => change({ [name]: input.value.trim() }));
      return element("label", { class: "field" }, element("span", {}, words), input);
    };
    made
      .closest(".row")
      ?.after(
        element(
          "div",
          { class: "fields" },
          field("Tokens to train on, as 300B", "tokens"),
          field("USD per GPU hour", "price"),
        ),
      );
    made.remove();
  });
  return made;
}

/** @param {string} words @param {string} note @param {(width: number) => Node[]} drawing */
function titled(words, note, drawing) {
  const place = element("div", { class: "plot" });
  requestAnimationFrame(() => fitted(place, drawing));
  return element(
    "div",
    { class: "titled" },
    element("h3", {}, words, element("span", { class: "u" }, ` · ${note}`)),
    place,
  );
}

/** @param {WhatIfAnswer} answer @returns {[string, string, string, string][]} */
function factsOf({ run, iteration_time, model_flops_utilization, tokens_per_s_per_gpu, sequences_per_s, intervals }) {
  const between = (/** @type {Interval | undefined} */ ends, factor = 1) =>
    ends ? `${figures(ends.low / factor)} to ${figures(ends.high / factor)}` : "";
  const cost = run?.cost == null ? [] : [["Cost", figures(run.cost / 1e6), "M$", between(run.intervals.cost, 1e6)]];
  const energy =
    run?.energy == null ? [] : [["Energy", figures(run.energy / 3.6e12), "GWh", between(run.intervals.energy, 3.6e12)]];
  const rest = [
    ["Tokens a second", figures(tokens_per_s_per_gpu), "a GPU", between(intervals?.tokens_per_s_per_gpu)],
    ["Sequences", figures(sequences_per_s), "a second", between(intervals?.sequences_per_s)],
  ];
  return /** @type {any} */ ([
    ["An iteration", figures(Number(iteration_time)), "s", between(intervals?.iteration_time)],
    ["Of peak (MFU)", figures(100 * model_flops_utilization), "%", between(intervals?.model_flops_utilization, 0.01)],
    ...[...cost, ...energy, ...rest].slice(0, 2),
  ]);
}

/** @param {WhatIfAnswer} answer */
function steps({ knobs: { sizes, steps: next }, gpus }) {
  const step = (/** @type {string} */ words, /** @type {string} */ help, /** @type {"p" | "t"} */ name) => {
    const set = (/** @type {"less" | "more"} */ way, /** @type {string} */ sign) =>
      button(sign, () => next[name][way] && configure(next[name][way]), {
        class: "",
        "aria-label": `${way === "less" ? "Fewer" : "More"} ${words.toLowerCase()}`,
        disabled: !next[name][way],
      });
    return element(
      "div",
      { class: "step", "data-size": name },
      element("span", {}, words, element("small", {}, help)),
      set("less", "−"),
      element("output", {}, String(sizes[name])),
      set("more", "+"),
    );
  };
  const split = [sizes.p, sizes.t, ...(sizes.c > 1 ? [sizes.c] : [])].join(" × ");
  return [
    step("Pipeline stages", next.p.more ? "pieces the layers are cut into" : "no larger number is legal here", "p"),
    step("GPUs per layer", next.t.more ? "tensor parallelism" : "no larger number is legal here", "t"),
    element(
      "div",
      { class: "step" },
      element(
        "span",
        {},
        "Replicas",
        element("small", {}, `what is left: ${Number(gpus).toLocaleString("en")} ÷ (${split})`),
      ),
      element("span"),
      element("output", {}, String(sizes.d)),
      element("span"),
    ),
  ];
}

/** @param {Chip} chip */
function chip({ name, on, changes, reason }) {
  const pressed = () => {
    byId("chip-why").textContent = reason ? `${name}: ${reason}` : "";
    if (!reason) configure(changes);
  };
  return button(name, pressed, {
    class: "chip",
    "aria-pressed": String(on),
    ...(reason && { "aria-disabled": "true", title: reason }),
  });
}

function limits() {
  return update("limits", "what_if", { ...asked(), sensitivity: true }, ({ limits: elasticities = [] }) => {
    const gains = elasticities
      .filter((/** @type {any} */ { fits, faster_by }) => fits && faster_by > 0.002)
      .map((/** @type {any} */ { change: what }) => what);
    const place = element("div", { class: "plot" });
    const heading = gains.length
      ? `What limits it: ${gains.slice(0, 2).join(", then ")}`
      : "What limits it: nothing that was tried";
    byId("limited").replaceChildren(
      element("h2", {}, heading),
      element(
        "p",
        { class: "note" },
        "Tokens per second gained or lost, in %, when one thing changes. Dashed: it does not fit.",
      ),
      place,
    );
    const told = elasticities.filter((/** @type {any} */ { faster_by }) => Math.abs(faster_by) >= 0.001);
    fitted(place, (width) => bars([...told.slice(0, 7), ...told.slice(7).slice(-3)], width));
  });
}

function save() {
  const point = { ...current().configuration, ...(isShipped() ? { cluster: current().cluster } : {}) };
  download("points.json", JSON.stringify([point], null, 1), "application/json");
}

export function fill() {
  const { scenarios, model_words: names } = /** @type {Offer} */ (offered());
  choices("model", names, form.modelShown());
  selectOf("model").prepend(option("", "of my own"));
  selectOf("model").value = form.modelShown();
  form.filled("more-layout", ["Layout", "Schedule", "Techniques"]);
  form.filled("more-model", ["Model"]);
  sweep.fill();
  byId("ask").querySelector(".field.off")?.remove();
  byId("scenarios").replaceChildren(
    ...scenarios.map(({ title, cluster: name, configuration, tokens }) =>
      button(title, () => change({ cluster: name, changes: {}, text: "", configuration, tokens })),
    ),
  );
  if (shown && current().view === "whatif") show(shown);
}

// The view of a configuration of one's own: four choices, an answer, the layout, techniques, and what follows.
import { interval, stack } from "./bars.js";
import * as best from "./best.js";
import * as comparison from "./comparison.js";
import {
  button,
  byId,
  checked,
  choices,
  copy,
  download,
  el,
  facts,
  field,
  fill as put,
  link,
  more,
  option,
  tell,
  valued,
} from "./elements.js";
import * as form from "./form.js";
import { layout } from "./layout.js";
import * as limits from "./limits.js";
import { picker } from "./machine.js";
import {
  change,
  cluster,
  complain,
  configure,
  current,
  isShipped,
  later,
  machine,
  offered,
  point,
  QUIET_MS,
  update,
} from "./page.js";
import { ask } from "./python.js";
import { answered, hasAnswer, isOutdated, outdated, refuse, refused, wrong } from "./refusals.js";
import { START } from "./state.js";
import { figures, fitted } from "./svg.js";
import * as sweep from "./sweep.js";

/** @type {any} */
let said;
/** @type {{ asked: any, answer: WhatIfAnswer } | undefined} */
let shown; // the answer on the page, and what was asked
/** @type {Record<string, any>} */
let steps = {}; // the next legal sizes of the layout
// The sizes of the layout, by letter: what they are called, and help where they can be chosen.
const STEPS = [
  ["p", "Pipeline stages", "pieces the layers are cut into"],
  ["t", "GPUs per layer", "tensor parallelism"],
  ["d", "Replicas", ""],
];
let taken = ""; // the configuration of which the note below the choices speaks

const counted = (/** @type {string} */ words, /** @type {string} */ id) =>
  checked([words], el(`input#${id}`, { type: "number", inputmode: "numeric", min: 1, input: () => choose(id) }));

/** What Python is asked for an answer. */
const given = () => ({ ...point(), tokens: current().tokens, price: current().price });

export function make() {
  byId("view-whatif").append(
    el(
      "div.head",
      el("h1", "What would it take to train your model?"),
      el("p.lede", "Four choices give an answer. Everything else has a good default, and can be changed below."),
    ),
    el(
      "div.bench",
      el(
        "section.ask#ask",
        { "aria-label": "Your choices" },
        el(
          "div.fields",
          field("Model", el("select#model", { change: chosenModel }), ".field.full"),
          picker("whatif"),
          counted("GPUs", "gpus"),
          counted("Batch, sequences", "batch"),
        ),
        el("p.note.error#invalid", { role: "alert", hidden: true }),
        el("p.note#taken", { role: "status" }),
        el("p.row", button("Find the best layout", find, ".btn.go#best")),
        el("p.row.tight#scenarios"),
      ),
      el(
        "section.tune",
        { "aria-label": "Layout and techniques" },
        el("h2", "Layout"),
        el("div.plot#layout"),
        el("div#steps", STEPS.map(stepper)),
        el("h2", "Techniques"),
        field("Training program", el("select#program", { change: chosenProgram })),
        el("div.chips#chips"),
        el("small#chip-why", { role: "status" }),
        el("div#whatif-details", more("More of the layout", "more-layout"), more("The model in detail", "more-model")),
      ),
      el("div.told", card(), el("section.limits#limited")),
    ),
    el("section#plans"),
    el("section#comparison"),
    sweep.section(),
    el(
      "p.row.tight",
      button("Save for the command line", save, ".quiet#export-json"),
      button("Copy command", ({ target }) => copy(target, "reproduce simulate points.json")),
    ),
    el(
      "p.dock#dock",
      el("b.num"),
      el("span.u.num"),
      button("Change", () => byId("ask").scrollIntoView()),
    ),
    el("p.off#changed", { role: "status" }),
  );
}

/** Another model with a layout of its own; one of one's own has its fields opened. */
async function chosenModel() {
  const name = byId("model").value;
  if (!name) {
    byId("more-model").open = true;
    return byId("more-model").scrollIntoView();
  }
  const gpus = byId("gpus").valueAsNumber || undefined; // which the layout shown may not have
  const given = { configuration: current().configuration, name, gpus, ...cluster() };
  await update("modelled", "modelled", given, ({ configuration, said: words }) => {
    taken = JSON.stringify(configuration);
    byId("taken").textContent = words;
    change({ configuration });
  });
}

/** Another program, without what it does not have. */
async function chosenProgram() {
  const name = byId("program").value;
  const { configuration } = await ask("programmed", { configuration: current().configuration, name });
  change({ configuration });
}

/** Another number of GPUs or sequences: its answer and all else if it is legal, else a sentence at the field. @param {string} id */
function choose(id) {
  const value = byId(id).valueAsNumber;
  if (!(value > 0)) return wrong(id, "Needs a number.");
  return update("whatif", "what_if", { ...given(), [id]: value }, ({ changes, refused: why, ...answer }) => {
    wrong(id, why ?? "");
    if (!changes) return;
    show(answer, { ...given(), configuration: { ...current().configuration, ...changes } });
    configure(changes);
  });
}

/** The best layouts; where there are none, this is said in place of what is wrong with the field. */
const find = () =>
  best.find((why) => {
    byId("gpus-field").querySelector(".why").textContent = "";
    refused(why);
  });

export function refresh() {
  const asked = given();
  const usual = { configuration: START.configuration, tokens: START.tokens, price: "" };
  const say = (/** @type {string} */ why) => lacking(usual, () => complain(why));
  const isShown = JSON.stringify(asked) === JSON.stringify(shown?.asked) && !isOutdated();
  const answered = isShown ? Promise.resolve() : update("whatif", "what_if", asked, (it) => show(it, asked), say);
  return answered.then(() => later("rest", rest));
}

/** What is changed after the number: the choices, the layout, and what is asked when no other choice comes. */
function rest() {
  const { configuration } = current();
  form.show();
  if (offered()) {
    byId("model").value = form.modelOf(configuration);
    byId("program").value = configuration.program ?? "";
  }
  best.refresh();
  if (shown) around(shown.answer, shown.asked.configuration);
  later("follow", follow, QUIET_MS);
}

/** Where no answer can be had the last one stays, dimmed; where there is none, that of what is nearest. @param {any} instead @param {() => void} say */
function lacking(instead, say) {
  if (hasAnswer()) {
    outdated();
    return say();
  }
  return update("whatif", "what_if", instead, (answer) => {
    if (answer.wrong) return say();
    show(answer, instead, "Without it");
    outdated();
    say();
  });
}

/** The number, and what is said of it. @param {WhatIfAnswer} answer @param {any} asked @param {string} [words] what it is called once it is old */
function show(answer, asked, words = "Last answer") {
  if (answer.wrong) return lacking({ ...asked, ...answer.instead }, () => refuse(answer.wrong ?? {}));
  shown = { asked, answer };
  const { sizes, gpus, headline, brief } = answer;
  number(answer);
  byId("dock").children[0].textContent = `${headline.value} ${headline.unit}`;
  byId("dock").children[1].textContent = brief;
  answered(words, asked, answer);
  const { tokens, price } = current();
  for (const [id, value] of Object.entries({ gpus, batch: sizes.B, tokens, price })) {
    if (byId(id) !== document.activeElement) byId(id).value = value;
    wrong(id, "");
  }
  clearTimeout(said);
  const { words: before, value, unit, interval: sure } = headline;
  const sentence = `${before} ${value} ${unit}${sure ? `, 9 of 10 in ${figures(sure.low)} to ${figures(sure.high)}` : ""}.`;
  said = setTimeout(() => (byId("changed").textContent = sentence), 500);
}

/** The answer's place: its number, facts, bars, and what one may do with it. */
const card = () =>
  el(
    "section.card#answer",
    { "aria-label": "Answer", hidden: true },
    el("div.answer#number"),
    el("p.chips#helps"),
    el("dl.facts#facts"),
    ["time", "memory"].map((of) => el("div.titled", el(`h3#${of}-words`), el(`div.plot#${of}-bar`))),
    el(
      "p.row.tight",
      button("Keep to compare", comparison.keep, ".quiet#keep"),
      link("#view=timeline", "See the timeline"),
      button("Change tokens and price", () => (byId("pricing").hidden = !byId("pricing").hidden)),
    ),
    el(
      "div.fields#pricing",
      { hidden: true },
      amount("Tokens to train on, as 300B", "tokens"),
      amount("USD per GPU hour", "price"),
    ),
  );

/** A field of an amount. @param {string} words @param {"tokens" | "price"} name */
function amount(words, name) {
  const changed = (/** @type {any} */ event) => {
    const text = event.target.value.trim();
    ask("amount", { text }).then(
      () => change({ [name]: text }),
      (error) => wrong(name, error.message),
    );
  };
  return checked([words], el(`input#${name}`, { change: changed }));
}

/** @param {WhatIfAnswer} answer */
function number({ status, headline, doubt, facts: rows, notes, phases, memory, iteration_time, capacity, helps = [] }) {
  const seconds = Number(iteration_time);
  const { words, value, unit, now, interval: sure } = headline;
  const [useful, fits, needed] = notes;
  const full = status === "oom";
  const help = (/** @type {Answers} */ { name, changes, memory: needs }) =>
    button(`${name}: ${figures(needs / 1e9)} GB, fits`, () => configure(changes), ".chip");
  byId("answer").hidden = false;
  put(
    "number",
    el("p.over", words),
    el(full ? "p.big.no" : "p.big", valued(value, unit)),
    sure && interval(now, sure, unit),
    el("p.note", full ? `${needed}.` : doubt),
  );
  put("helps", full && [helps.map(help), button("Find a layout that fits", find, ".chip")]);
  facts("facts", rows);
  put("time-words", `Where an iteration’s ${figures(seconds)} s go`, el("span.u", ` · ${useful}`));
  fitted(byId("time-bar"), (width) => stack(phases, seconds, "s", width));
  put("memory-words", "The fullest GPU’s memory", el("span.u", ` · ${fits}`));
  fitted(byId("memory-bar"), (width) => stack(memory, capacity / 1e9, "GB", width));
}

/** What stands around an answer: its layout, and the state of the details. @param {WhatIfAnswer} answer @param {Configuration} configuration */
function around({ sizes, per_node }, configuration) {
  if (JSON.stringify(configuration) !== taken) byId("taken").textContent = "";
  fitted(byId("layout"), (width) => layout(sizes, per_node ?? 8, width));
  tell("more-layout", `microbatch ${sizes.b}`);
  tell("more-model", `${sizes.layers} layers, hidden size ${Number(configuration.hidden).toLocaleString("en")}`);
  STEPS.forEach(sized);
}

/** A size of the layout: its words and help, and its value between buttons, but for what follows from the others. @param {string[]} size */
function stepper([name, words, help]) {
  const set = (/** @type {string} */ way, /** @type {string} */ sign, /** @type {string} */ change) => {
    const label = `${change} ${words.toLowerCase()}`;
    return help ? button(sign, () => configure(steps[name][way]), "", { "aria-label": label }) : el("span");
  };
  return el(
    "div.step",
    { "data-size": name },
    el("span", words, el("small", help)),
    set("less", "−", "Fewer"),
    el("output"),
    set("more", "+", "More"),
  );
}

/** The value of a size, and whether there is a next one. @param {string[]} size */
function sized([name, , help]) {
  const { sizes, gpus } = /** @type {any} */ (shown).answer;
  const row = /** @type {any} */ (document.querySelector(`[data-size=${name}]`));
  const [small, output] = row.querySelectorAll("small, output");
  const [less, more] = row.querySelectorAll("button");
  output.textContent = sizes[name];
  const others = [sizes.p, sizes.t, ...(sizes.c > 1 ? [sizes.c] : [])].join(" × ");
  small.textContent = help || `what is left: ${Number(gpus).toLocaleString("en")} ÷ (${others})`;
  if (!steps[name]) return;
  [less.disabled, more.disabled] = [!steps[name].less, !steps[name].more];
  if (more.disabled) small.textContent = "no larger number is legal here";
}

/** What an answer leads to: how it compares, its curve, the next legal sizes and techniques, what limits it. */
function follow() {
  comparison.refresh();
  void sweep.refresh();
  if (!shown) return;
  const { tokens: _, price: __, ...about } = shown.asked;
  return update("knobs", "knobs", about, (next) => {
    steps = next.steps;
    STEPS.forEach(sized);
    const at = [...byId("chips").children].indexOf(document.activeElement);
    put("chips", next.chips.map(chip));
    byId("chips").children[at]?.focus();
    void limits.refresh(about);
  });
}

/** A technique: on or off, or one of several values. @param {Chip} technique */
function chip({ name, on, options, at, reason }) {
  if (options.length > 1) {
    const set = (/** @type {any} */ { target }) => configure(options[target.selectedIndex].changes);
    const named = options.map(({ words }) => option(words));
    const made = el("select.chip", { change: set, "aria-label": name, "data-on": on }, named);
    made.selectedIndex = at;
    return made;
  }
  const pressed = () => {
    byId("chip-why").textContent = reason ? `${name}: ${reason}` : "";
    if (!reason) configure(options[0].changes);
  };
  const struck = reason && { "aria-disabled": "true", title: reason };
  return button(name, pressed, ".chip", { "aria-pressed": String(on), ...struck });
}

function save() {
  const one = { ...current().configuration, ...(isShipped() && { cluster: machine() }) };
  download("points.json", JSON.stringify([one], null, 1), "application/json");
}

export function fill() {
  const { scenarios, model_words: names, fields } = /** @type {Offer} */ (offered());
  choices("model", { "": "a model of my own", ...names }, form.modelOf(current().configuration));
  choices("program", fields.program.choice_words, String(current().configuration.program ?? ""));
  form.filled("more-layout", ["Layout", "Schedule", "Techniques"]);
  form.filled("more-model", ["Model"]);
  sweep.fill();
  const start = (/** @type {Scenario} */ { title, cluster, configuration, tokens }) =>
    button(title, () => change({ cluster, changes: {}, text: "", configuration, tokens }));
  put("scenarios", scenarios.map(start));
  if (current().view === "whatif") void refresh();
}

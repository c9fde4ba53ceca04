// The view of a configuration of one's own: four choices, an answer, the layout, techniques, and what follows.
import { interval, stack } from "./bars.js";
import * as best from "./best.js";
import * as comparison from "./comparison.js";
import {
  button,
  byId,
  choices,
  copy,
  download,
  el,
  facts,
  field,
  fill as put,
  link,
  more,
  valued,
} from "./elements.js";
import * as form from "./form.js";
import * as knobs from "./knobs.js";
import * as limits from "./limits.js";
import { picker } from "./machine.js";
import * as page from "./page.js";
import { ask } from "./python.js";
import { answered, hasAnswer, isOutdated, outdated, refuse, refused, wrong } from "./refusals.js";
import { START } from "./state.js";
import { figures, fitted } from "./svg.js";
import * as sweep from "./sweep.js";

/** @type {any} */
let said;
/** @type {{ asked: any, answer: WhatIfAnswer } | undefined} */
let shown; // the answer on the page, and what was asked
let taken = ""; // the configuration of which the note below the choices speaks

const counted = (/** @type {string} */ words, /** @type {string} */ id) =>
  field(words, el(`input#${id}`, { type: "number", inputmode: "numeric", min: 1, input: () => choose(id) }));

/** What Python is asked for an answer. */
const given = () => ({ ...page.point(), tokens: page.current().tokens, price: page.current().price });

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
          field("Model", el("select#model", { change: chosenModel }), ".full"),
          picker("whatif"),
          counted("GPUs", "gpus"),
          counted("Batch, sequences", "batch"),
        ),
        el("p.note.error#invalid", { role: "alert", hidden: true }),
        el("p.note#taken", { role: "status" }),
        el("p.row", button("Find the best layout", find, ".btn.go#best")),
        el("p.row.tight#scenarios"),
      ),
      knobs.section(
        field("Training program", el("select#program", { change: chosenProgram })),
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
  const given = { configuration: page.current().configuration, name, gpus, ...page.cluster() };
  await page.update("modelled", "modelled", given, ({ configuration, said: words }) => {
    taken = JSON.stringify(configuration);
    byId("taken").textContent = words;
    page.change({ configuration });
  });
}

/** Another program, without what it does not have. */
async function chosenProgram() {
  const name = byId("program").value;
  const { configuration } = await ask("programmed", { configuration: page.current().configuration, name });
  page.change({ configuration });
}

/** Another number of GPUs or sequences: its answer and all else if it is legal, else a sentence at the field. @param {string} id */
function choose(id) {
  const value = byId(id).valueAsNumber;
  if (!(value > 0)) return wrong(id, "Needs a number.");
  return question({ ...given(), [id]: value }, ({ changes, refused: why, ...answer }) => {
    wrong(id, why ?? "");
    if (!changes) return;
    show(answer, { ...given(), configuration: { ...page.current().configuration, ...changes } });
    page.configure(changes);
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
  const say = (/** @type {string} */ why) => lacking(usual, () => page.complain(why));
  const isShown = JSON.stringify(asked) === JSON.stringify(shown?.asked) && !isOutdated();
  if (isShown) return page.later("rest", rest);
  return question(asked, (it) => show(it, asked), say);
}

/** Ask for a number, and then for what follows from it, unless another is asked for meanwhile. @param {any} asked @param {(answer: any) => unknown} tell @param {(why: string) => unknown} [lacks] */
async function question(asked, tell, lacks) {
  page.next("rest");
  page.next("follow");
  if ((await page.update("whatif", "what_if", asked, tell, lacks)) !== "old") page.later("rest", rest);
}

/** What is changed after the number: the choices, the layout, and what is asked when no other choice comes. */
function rest() {
  const { configuration } = page.current();
  form.show();
  if (page.offered()) {
    byId("model").value = form.modelOf(configuration);
    byId("program").value = configuration.program ?? "";
  }
  best.refresh();
  if (JSON.stringify(configuration) !== taken) byId("taken").textContent = "";
  if (shown) knobs.show(shown.answer, shown.asked.configuration);
  page.later("follow", follow, page.QUIET_MS);
}

/** Where no answer can be had the last one stays, dimmed; where there is none, that of what is nearest. @param {any} instead @param {() => void} say */
function lacking(instead, say) {
  if (hasAnswer()) {
    outdated();
    return say();
  }
  return question(instead, (answer) => {
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
  const { tokens, price } = page.current();
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
      () => page.change({ [name]: text }),
      (error) => wrong(name, error.message),
    );
  };
  return field(words, el(`input#${name}`, { change: changed }));
}

/** @param {WhatIfAnswer} answer */
function number({ status, headline, doubt, facts: rows, notes, phases, memory, iteration_time, capacity, helps = [] }) {
  const seconds = Number(iteration_time);
  const { words, value, unit, now, interval: sure } = headline;
  const [useful, fits, needed] = notes;
  const full = status === "oom";
  const help = (/** @type {Answers} */ { name, changes, memory: needs }) =>
    button(`${name}: ${figures(needs / 1e9)} GB, fits`, () => page.configure(changes), ".chip");
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

/** What an answer leads to: how it compares, its curve, the next legal sizes and techniques, what limits it. */
function follow() {
  comparison.refresh();
  void sweep.refresh();
  if (!shown) return;
  const { tokens: _, price: __, ...about } = shown.asked;
  return knobs.refresh(about, () => limits.refresh(about));
}

function save() {
  const one = { ...page.current().configuration, ...(page.isShipped() && { cluster: page.machine() }) };
  download("points.json", JSON.stringify([one], null, 1), "application/json");
}

export function fill() {
  const { scenarios, model_words: names, fields } = /** @type {Offer} */ (page.offered());
  choices("model", { "": "a model of my own", ...names }, form.modelOf(page.current().configuration));
  choices("program", fields.program.choice_words, String(page.current().configuration.program ?? ""));
  form.filled("more-layout", ["Layout", "Schedule", "Techniques"]);
  form.filled("more-model", ["Model"]);
  sweep.fill();
  const start = (/** @type {Scenario} */ { title, cluster, configuration, tokens }) =>
    button(title, () => page.change({ cluster, changes: {}, text: "", configuration, tokens }));
  put("scenarios", scenarios.map(start));
  if (page.current().view === "whatif") void refresh();
}

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
import { change, cluster, complain, configure, current, isShipped, machine, offered, point, update } from "./page.js";
import { ask } from "./python.js";
import { answered, hasAnswer, outdated, refuse, refused, wrong } from "./refusals.js";
import { START } from "./state.js";
import { figures, fitted } from "./svg.js";
import * as sweep from "./sweep.js";

/** @type {any} */
let said;
/** @type {object} */
let shown; // what the answer on the page is of
let taken = ""; // the configuration of which the note below the choices speaks
/** @type {{ of: string, answer: WhatIfAnswer } | undefined} */
let known; // what was answered to a choice, until it is shown

const number = (/** @type {string} */ words, /** @type {string} */ id) =>
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
          number("GPUs", "gpus"),
          number("Batch, sequences", "batch"),
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
        el("div#steps"),
        el("h2", "Techniques"),
        field("Training program", el("select#program", { change: chosenProgram })),
        el("div.chips#chips"),
        el("small#chip-why", { role: "status" }),
        el("div#whatif-details", more("More of the layout", "more-layout"), more("The model in detail", "more-model")),
      ),
      el("div.told", el("section.card#answer", { "aria-label": "Answer" }), el("section.limits#limited")),
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

/** Another number of GPUs or sequences: taken with its answer if legal, else a sentence at the field. @param {string} id */
function choose(id) {
  const value = byId(id).valueAsNumber;
  if (!(value > 0)) return wrong(id, "Needs a number.");
  return update("whatif", "what_if", { ...given(), [id]: value }, ({ changes, refused: why, ...answer }) => {
    wrong(id, why ?? "");
    if (!changes) return;
    known = { of: JSON.stringify({ ...given(), configuration: { ...current().configuration, ...changes } }), answer };
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
  form.show();
  if (offered()) {
    byId("model").value = form.modelOf(current().configuration);
    byId("program").value = current().configuration.program ?? "";
  }
  best.refresh();
  const usual = { configuration: START.configuration, tokens: START.tokens, price: "" };
  const asked = given();
  const say = (/** @type {string} */ why) => lacking(usual, () => complain(why));
  const answer =
    known?.of === JSON.stringify(asked)
      ? show(known.answer, asked)
      : update("whatif", "what_if", asked, (it) => show(it, asked), say);
  known = undefined;
  comparison.refresh();
  sweep.refresh();
  return answer;
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

/** @param {WhatIfAnswer} answer @param {any} asked @param {string} [words] what it is called once it is old */
function show(answer, asked, words = "Last answer") {
  if (answer.wrong) return lacking({ ...asked, ...answer.instead }, () => refuse(answer.wrong ?? {}));
  refused("");
  const { tokens, price: _, ...about } = asked;
  const { configuration } = about;
  if (JSON.stringify(configuration) !== taken) byId("taken").textContent = "";
  answered(words, offered()?.model_words[form.modelOf(configuration)] ?? "", answer, tokens);
  const { sizes, gpus, headline, brief } = answer;
  for (const [id, value] of Object.entries({ gpus, batch: sizes.B })) {
    if (byId(id) !== document.activeElement) byId(id).value = value;
    wrong(id, "");
  }
  put("answer", told(answer));
  fitted(byId("layout"), (width) => layout(sizes, answer.per_node ?? 8, width));
  tell("more-layout", `microbatch ${sizes.b}`);
  tell("more-model", `${sizes.layers} layers, hidden size ${Number(configuration.hidden).toLocaleString("en")}`);
  const [big, rest] = byId("dock").children;
  big.textContent = `${headline.value} ${headline.unit}`;
  rest.textContent = brief;
  clearTimeout(said);
  const { words: before, value, unit, interval: sure } = headline;
  const sentence = `${before} ${value} ${unit}${sure ? `, 9 of 10 in ${figures(sure.low)} to ${figures(sure.high)}` : ""}.`;
  said = setTimeout(() => (byId("changed").textContent = sentence), 500);
  shown = asked;
  requestAnimationFrame(() => setTimeout(() => shown === asked && follow(answer, about))); // once it is on the screen
}

/** What an answer leads to: the next legal sizes and techniques, then what limits it. @param {WhatIfAnswer} answer @param {object} about */
const follow = ({ sizes, gpus }, about) =>
  update("knobs", "knobs", about, ({ steps, chips }) => {
    put("steps", sized(sizes, steps, gpus));
    put("chips", chips.map(chip));
    void limits.refresh(about);
  });

/** @param {WhatIfAnswer} answer */
function told({ status, headline, doubt, facts: rows, notes, phases, memory, iteration_time, capacity, helps = [] }) {
  const seconds = Number(iteration_time);
  const { words, value, unit, now, interval: sure } = headline;
  const [useful, fits, needed] = notes;
  const full = status === "oom";
  const help = (/** @type {Answers} */ { name, changes, memory: needs }) =>
    button(`${name}: ${figures(needs / 1e9)} GB, fits`, () => configure(changes), ".chip");
  return [
    el(
      "div.answer",
      el("p.over", words),
      el(full ? "p.big.no" : "p.big", valued(value, unit)),
      sure && interval(now, sure, unit),
      el("p.note", full ? `${needed}.` : doubt),
    ),
    full && el("p.chips#helps", helps.map(help), button("Find a layout that fits", find, ".chip")),
    facts(rows),
    titled(`Where an iteration’s ${figures(seconds)} s go`, useful, (width) => stack(phases, seconds, "s", width)),
    titled("The fullest GPU’s memory", fits, (width) => stack(memory, capacity / 1e9, "GB", width)),
    el(
      "p.row.tight",
      button("Keep to compare", comparison.keep, ".quiet#keep"),
      link("#view=timeline", "See the timeline"),
      button("Change tokens and price", priced, ".quiet#priced"),
    ),
  ];
}

/** Tokens of the run and the price of a GPU hour, in fields in place of the button. @param {any} event */
function priced({ target }) {
  const one = (/** @type {string} */ words, /** @type {"tokens" | "price"} */ name) => {
    const changed = (/** @type {any} */ event) => {
      const text = event.target.value.trim();
      ask("amount", { text }).then(
        () => change({ [name]: text }),
        (error) => wrong(name, error.message),
      );
    };
    return checked([words], el(`input#${name}`, { value: current()[name], change: changed }));
  };
  const made = [one("Tokens to train on, as 300B", "tokens"), one("USD per GPU hour", "price")];
  target.closest(".row").after(el("div.fields", made));
  target.remove();
}

/** A drawing below its words. @param {string} words @param {string} note @param {(width: number) => any} drawing */
const titled = (words, note, drawing) =>
  el("div.titled", el("h3", words, el("span.u", ` · ${note}`)), fitted(el("div.plot"), drawing));

/** The sizes of the layout, with the next legal ones. @param {any} sizes @param {any} next @param {number | null} gpus */
function sized(sizes, next, gpus) {
  const one = (/** @type {string} */ words, /** @type {string} */ help, /** @type {string} */ name) => {
    const set = (/** @type {string} */ way, /** @type {string} */ sign, /** @type {string} */ more) => {
      const to = next[name]?.[way];
      const label = `${more} ${words.toLowerCase()}`;
      return next[name] ? button(sign, () => configure(to), "", { "aria-label": label, disabled: !to }) : el("span");
    };
    const said = !next[name] || next[name].more ? help : "no larger number is legal here";
    return el(
      "div.step",
      { "data-size": name },
      el("span", words, el("small", said)),
      set("less", "−", "Fewer"),
      el("output", sizes[name]),
      set("more", "+", "More"),
    );
  };
  const split = [sizes.p, sizes.t, ...(sizes.c > 1 ? [sizes.c] : [])].join(" × ");
  return [
    one("Pipeline stages", "pieces the layers are cut into", "p"),
    one("GPUs per layer", "tensor parallelism", "t"),
    one("Replicas", `what is left: ${Number(gpus).toLocaleString("en")} ÷ (${split})`, "d"),
  ];
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

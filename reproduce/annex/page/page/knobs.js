// Layout and techniques in What if: a picture, the sizes with the next legal ones, and chips.
import { button, byId, el, fill as put, option, tell } from "./elements.js";
import { layout } from "./layout.js";
import { configure, update } from "./page.js";
import { fitted } from "./svg.js";

// The sizes of the layout, by letter: what they are called, and help where they can be chosen.
const STEPS = [
  ["p", "Pipeline stages", "pieces the layers are cut into"],
  ["t", "GPUs per layer", "tensor parallelism"],
  ["d", "Replicas", ""],
];
/** @type {any} */
let shown; // an answer
/** @type {Record<string, any>} */
let steps = {}; // the next legal sizes

/** @param {any} program its field @param {any} further what stands below the chips */
export const section = (program, further) =>
  el(
    "section.tune",
    { "aria-label": "Layout and techniques" },
    el("h2", "Layout"),
    el("div.plot#layout"),
    el("div#steps", STEPS.map(stepper)),
    el("h2", "Techniques"),
    program,
    el("div.chips#chips"),
    el("small#chip-why", { role: "status" }),
    further,
  );

/** The layout of an answer, and the state of the details. @param {WhatIfAnswer} answer @param {Configuration} configuration */
export function show(answer, configuration) {
  shown = answer;
  const { sizes, per_node } = answer;
  fitted(byId("layout"), (width) => layout(sizes, per_node ?? 8, width));
  tell("more-layout", `microbatch ${sizes.b}`);
  tell("more-model", `${sizes.layers} layers, hidden size ${Number(configuration.hidden).toLocaleString("en")}`);
  STEPS.forEach(sized);
}

/** A size of the layout: its words and help, and its value between buttons, but for what follows from the others. @param {string[]} size */
function stepper([name, words, help]) {
  const set = (/** @type {string} */ way, /** @type {string} */ sign, /** @type {string} */ change) => {
    const label = `${change} ${words.toLowerCase()}`;
    return help ? button(sign, () => configure(steps[name]?.[way]), "", { "aria-label": label }) : el("span");
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
  const { sizes, gpus } = shown;
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

/** Ask for the next legal sizes and the techniques. @param {any} about the configuration on its cluster @param {() => unknown} then */
export const refresh = (about, then) =>
  update("knobs", "knobs", about, (next) => {
    steps = next.steps;
    STEPS.forEach(sized);
    const at = [...byId("chips").children].indexOf(document.activeElement);
    put("chips", next.chips.map(chip));
    byId("chips").children[at]?.focus();
    void then();
  });

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

// What is refused in What if: a sentence at the field, and the last answer dimmed.
import { byId } from "./elements.js";
import { modelOf } from "./form.js";
import { current, offered } from "./page.js";

const ANSWERS = ["answer", "dock"]; // where it is told
const CHOICES = /** @type {Record<string, string>} */ ({ B: "batch", d: "gpus" }); // a field by another name
/** @type {{ words: string, asked: any, answer: WhatIfAnswer } | undefined} */
let last; // the shown answer, what was asked, and what it is called once it is old
let old = false;

/** @param {string} id @param {string} why */
export function wrong(id, why) {
  byId(`${id}-field`).classList.toggle("bad", Boolean(why));
  byId(`${id}-field`).querySelector(".why").textContent = why;
  refused("");
  if (why) outdated();
}

/** Say below the choices what is wrong with them together. @param {string} why */
export function refused(why) {
  byId("invalid").textContent = why;
  byId("invalid").hidden = !why;
}

/** Say what is wrong with each value, at its field, or where that is not shown below the choices. @param {Record<string, string>} values */
export function refuse(values) {
  if (values.tokens || values.price) byId("pricing").hidden = false;
  const at = (/** @type {string} */ name) =>
    CHOICES[name] ?? (name in { tokens: 0, price: 0 } ? name : `field-${name}`);
  const others = [];
  for (const [name, why] of Object.entries(values))
    if (!byId(`${at(name)}-field`)?.getClientRects().length) others.push(why);
    else {
      const given = Number(current().configuration[name]);
      if (name in CHOICES) byId(at(name)).value = name === "B" && Number.isFinite(given) ? given : "";
      wrong(at(name), why);
    }
  outdated();
  if (others.length) refused(others.join(" "));
}

/** An answer is shown. @param {string} words what it is called once it is old @param {any} asked @param {WhatIfAnswer} answer */
export function answered(words, asked, answer) {
  last = { words, asked, answer };
  dim(false);
}

export const hasAnswer = () => Boolean(last);
export const isOutdated = () => old;

/** @param {boolean} on */
function dim(on) {
  old = on;
  for (const id of ANSWERS) byId(id).classList.toggle("stale", on);
}

/** The answer is of something else than what is chosen: it is dimmed, and says of what. */
export function outdated() {
  if (!last) return;
  const { words, asked, answer } = last;
  const of = `${Number(answer.gpus).toLocaleString("en")} GPUs, batch ${answer.sizes.B.toLocaleString("en")}`;
  const model = offered()?.model_words[modelOf(asked.configuration)];
  const all = [model, of, asked.tokens && `${asked.tokens} tokens`].filter(Boolean).join(", ");
  byId("answer").querySelector(".over").textContent = `${words}: ${all}`;
  byId("dock").children[1].textContent = `${words}: ${of}`;
  dim(true);
}

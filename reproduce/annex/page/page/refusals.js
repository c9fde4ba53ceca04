// What is refused in What if: a sentence at the field, and the last answer dimmed.
import { byId } from "./elements.js";
import { current } from "./page.js";

const ANSWERS = ["answer", "dock"]; // where it is told
const CHOICES = /** @type {Record<string, string>} */ ({ B: "batch", d: "gpus" }); // a field by another name
/** @type {{ card: string, bar: string } | undefined} */
let last; // of what the shown answer is

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
  if (values.tokens || values.price) byId("priced")?.click();
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

/** An answer is told, of what its model, sizes and tokens say. @param {string} words what it is called once it is old @param {string} model @param {WhatIfAnswer} answer @param {string} tokens */
export function answered(words, model, { gpus, sizes }, tokens) {
  const of = `${Number(gpus).toLocaleString("en")} GPUs, batch ${sizes.B.toLocaleString("en")}`;
  const all = [model, of, tokens && `${tokens} tokens`].filter(Boolean).join(", ");
  last = { card: `${words}: ${all}`, bar: `${words}: ${of}` };
  for (const id of ANSWERS) byId(id).classList.remove("stale");
}

export const hasAnswer = () => Boolean(last);

/** The answer is of something else than what is chosen: it is dimmed, and says of what. */
export function outdated() {
  if (!last) return;
  byId("answer").querySelector(".over").textContent = last.card;
  byId("dock").children[1].textContent = last.bar;
  for (const id of ANSWERS) byId(id).classList.add("stale");
}

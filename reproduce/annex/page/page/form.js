// Fields of a configuration, in words, as Python describes them: those of the layout, and those of the model.
import { byId, element, inputOf, option } from "./elements.js";
import { configure, current, fail, offered } from "./page.js";

const WORDS = 14; // of help under a label
const CHOSEN = ["p", "t", "d", "B"]; // which have better places

/** Make the fields of some groups. @param {string[]} groups */
export const fieldset = (groups) =>
  element(
    "div",
    { class: "fields" },
    ...Object.entries(offered()?.fields ?? {})
      .filter(([name, { group }]) => groups.includes(group) && !CHOSEN.includes(name))
      .map(([name, field]) => one(name, field)),
  );

/** @param {string} name @param {Field} definition */
function one(name, { words, letter, unit, sentence, choices, choice_words, default: usual, least, most, whole }) {
  const id = `field-${name}`;
  const named = [words, unit && `, ${unit}`, letter && " "].filter(Boolean).join("");
  let input;
  if (choices)
    input = element("select", { id, name }, ...choices.map((choice) => option(choice, choice_words[choice])));
  else if (typeof usual === "boolean") input = element("input", { id, name, type: "checkbox" });
  else if (typeof usual === "string") input = element("input", { id, name, type: "text" });
  else
    input = element("input", {
      id,
      name,
      type: "number",
      inputmode: "decimal",
      step: whole ? 1 : "any",
      min: least ?? false,
      max: most ?? false,
    });
  input.addEventListener("change", () => changed(name, words, input));
  const help = sentence.split(/(?<=\.) /)[0];
  const small = help.split(" ").length <= WORDS ? [element("small", {}, help)] : [];
  return element(
    "label",
    { class: "field", title: sentence },
    element("span", {}, named, letter && element("var", {}, letter)),
    input,
    ...small,
  );
}

/** @param {string} name @param {string} words @param {HTMLInputElement | HTMLSelectElement} input */
function changed(name, words, input) {
  if (input instanceof HTMLSelectElement || input.type === "text") return configure({ [name]: input.value });
  if (input.type === "checkbox") return configure({ [name]: input.checked });
  if (Number.isNaN(input.valueAsNumber)) return fail(`${words} is empty; needs a number`);
  configure({ [name]: input.valueAsNumber });
}

/** Show the configuration in the fields; what one is writing in stays as it is. */
export function show() {
  for (const [name, { default: usual }] of Object.entries(offered()?.fields ?? {})) {
    if (!document.getElementById(`field-${name}`)) continue;
    const input = inputOf(`field-${name}`);
    const value = current().configuration[name] ?? usual ?? "";
    if (input.type === "checkbox") input.checked = Boolean(value);
    else if (input !== document.activeElement || input instanceof HTMLSelectElement)
      input.value = input.type === "number" && !Number.isFinite(value) ? "" : String(value);
  }
}

/** The name of the known model that the configuration has, or "". */
export function modelShown() {
  const { models, fields } = /** @type {Offer} */ (offered());
  const { configuration } = current();
  const same = (/** @type {[string, Configuration]} */ [, sizes]) =>
    Object.entries(sizes).every(([name, size]) => (configuration[name] ?? fields[name].default) === size);
  return Object.entries(models).find(same)?.[0] ?? "";
}

/** Fill a detail of the view with its fields, once it is opened. @param {string} id @param {string[]} groups */
export const filled = (id, groups) =>
  byId(id).addEventListener("toggle", () => {
    const place = byId(id).querySelector("div");
    if (!place || place.querySelector(".fields")) return;
    place.prepend(fieldset(groups));
    show();
  });

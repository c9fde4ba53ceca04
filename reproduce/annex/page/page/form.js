// Fields of a configuration, in words, as Python describes them: those of the layout, and those of the model.
import { byId, el, field, option } from "./elements.js";
import { configure, current, fail, offered } from "./page.js";

const WORDS = 14; // of help under a label
const CHOSEN = ["p", "t", "d", "B", "program"]; // which have better places

/** @param {string} name @param {Field} definition */
function one(name, { words, letter, unit, sentence, choices, choice_words, default: usual, least, most, whole }) {
  const number = { type: "number", inputmode: "decimal", step: whole ? 1 : "any", min: least, max: most };
  const kind =
    typeof usual === "boolean" ? { type: "checkbox" } : typeof usual === "string" ? { type: "text" } : number;
  const change = (/** @type {any} */ { target: { type, value, checked, valueAsNumber } }) => {
    if (type !== "number") return configure({ [name]: type === "checkbox" ? checked : value });
    if (Number.isNaN(valueAsNumber)) return fail(`${words} is empty; needs a number`);
    configure({ [name]: valueAsNumber });
  };
  const given = { name, change, ...(!choices && kind) };
  const options = choices?.map((choice) => option(choice, choice_words[choice]));
  const help = sentence.split(/(?<=\.)(?<!al\.) /)[0];
  const input = el(`${choices ? "select" : "input"}#field-${name}`, { title: sentence, ...given }, options);
  const label = [`${words}${unit && `, ${unit}`}${letter && " "}`, letter && el("var", letter)];
  return field(label, input, "", help.split(" ").length <= WORDS && el("small", help));
}

/** Show the configuration in the fields; what one is writing in stays as it is. */
export function show() {
  for (const [name, { default: usual }] of Object.entries(offered()?.fields ?? {})) {
    const input = byId(`field-${name}`);
    if (!input) continue;
    const value = current().configuration[name] ?? usual ?? "";
    if (input.type === "checkbox") input.checked = Boolean(value);
    else if (input !== document.activeElement || input.type.startsWith("select"))
      input.value = input.type === "number" && !Number.isFinite(value) ? "" : String(value);
  }
}

/** The name of the known model that a configuration has, or "". @param {Configuration} configuration */
export function modelOf(configuration) {
  const { models = {}, fields } = /** @type {any} */ (offered() ?? {});
  const now = (/** @type {string} */ name) => configuration[name] ?? fields[name].default;
  const same = (/** @type {[string, any]} */ [, sizes]) =>
    Object.entries(sizes).every(([name, size]) => now(name) === size);
  return Object.entries(models).find(same)?.[0] ?? "";
}

/** Fill a detail of the view with the fields of some groups, once it is opened. @param {string} id @param {string[]} groups */
export const filled = (id, groups) =>
  byId(id).addEventListener(
    "toggle",
    () => {
      const fields = Object.entries(offered()?.fields ?? {});
      const shown = fields.filter(([name, { group }]) => groups.includes(group) && !CHOSEN.includes(name));
      const made = shown.map((each) => one(...each));
      byId(id).querySelector("div").prepend(el("div.fields", made));
      show();
    },
    { once: true },
  );

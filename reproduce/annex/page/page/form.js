// The form of a configuration: every field with its words, unit, range and help, as Python describes it.
import { button, byId, element, inputOf, option, selectOf } from "./elements.js";
import { configure, current, fail, offered } from "./page.js";

/** Make the form, once Python has said which fields there are. */
export function fill() {
  const { fields, models } = /** @type {Offer} */ (offered());
  const wide = matchMedia("(min-width: 60rem)").matches;
  const groups = [...new Set(Object.values(fields).map(({ group }) => group))];
  byId("configuration").replaceChildren(
    ...groups.map((group) => {
      const names = Object.keys(fields).filter((name) => fields[name].group === group);
      return element(
        "details",
        { class: "group", open: group !== "Model" && (wide || group !== "Techniques") },
        element("summary", {}, group),
        ...(group === "Model" ? [shipped(models)] : []),
        ...names.map((name) => field(name, fields[name])),
      );
    }),
  );
  show();
}

/** @param {Record<string, Configuration>} models */
function shipped(models) {
  const select = element(
    "select",
    { id: "model" },
    option("", "of my own"),
    ...Object.keys(models).map((n) => option(n)),
  );
  select.addEventListener("change", () => {
    if (select.value) configure(models[select.value]);
  });
  return element("div", { class: "field" }, element("label", { for: "model" }, "Known model"), select);
}

/** @param {string} name @param {Field} definition */
function field(name, definition) {
  const { words, letter, unit, choices, default: usual } = definition;
  const id = `field-${name}`;
  const label = element("label", { for: id }, words, letter && " ", letter && element("var", {}, letter));
  let input;
  if (choices) input = element("select", { id, name }, ...choices.map((choice) => option(choice, choice || "default")));
  else if (typeof usual === "boolean") input = element("input", { id, name, type: "checkbox" });
  else if (typeof usual === "string") input = element("input", { id, name, type: "text" });
  else input = number(id, name, definition);
  const event = input instanceof HTMLInputElement && input.type === "number" ? "input" : "change";
  input.addEventListener(event, () => changed(name, words, input));
  return element(
    "div",
    { class: "field" },
    label,
    input,
    element("span", { class: "unit" }, unit),
    ...help(name, definition),
  );
}

/** @param {string} id @param {string} name @param {Field} definition */
function number(id, name, { least, most, whole }) {
  const ends = { min: least ?? false, max: most ?? false };
  return element("input", { id, name, type: "number", inputmode: "decimal", step: whole ? 1 : "any", ...ends });
}

/**
 * What the field is, and may be: a button, for a click, a key or a finger, and what it opens.
 *
 * @param {string} name
 * @param {Field} definition
 */
function help(name, { words, sentence, least, most, choices }) {
  const range = choices || least === null ? "" : most === null ? `${least} or more. ` : `${least} to ${most}. `;
  const text = element("p", { hidden: true }, `${sentence} ${range}In files: `, element("code", {}, name));
  const opened = button(
    "?",
    () => {
      text.hidden = !text.hidden;
      opened.setAttribute("aria-expanded", String(!text.hidden));
    },
    { class: "help", "aria-label": `What ${words} means`, "aria-expanded": "false" },
  );
  return [opened, text];
}

/** @param {string} name @param {string} words @param {HTMLInputElement | HTMLSelectElement} input */
function changed(name, words, input) {
  if (input instanceof HTMLSelectElement) return configure({ [name]: input.value });
  if (input.type === "checkbox") return configure({ [name]: input.checked });
  if (input.type === "text") return configure({ [name]: input.value });
  if (Number.isNaN(input.valueAsNumber)) {
    byId("configuration").dispatchEvent(new Event("emptied"));
    return fail(`${words} is empty; needs a number`);
  }
  configure({ [name]: input.valueAsNumber });
}

/** Show the configuration in the form; what one is writing in stays as it is. */
export function show() {
  for (const [name, { default: usual }] of Object.entries(offered()?.fields ?? {})) {
    const input = inputOf(`field-${name}`);
    const value = current().configuration[name] ?? usual ?? "";
    if (input.type === "checkbox") input.checked = Boolean(value);
    else if (input !== document.activeElement || input instanceof HTMLSelectElement)
      input.value = input.type === "number" && !Number.isFinite(value) ? "" : String(value);
  }
  if (offered()) selectOf("model").value = modelShown();
}

/** The name of the known model that the form shows, or "". */
function modelShown() {
  const { models, fields } = /** @type {Offer} */ (offered());
  const { configuration } = current();
  const same = (/** @type {[string, Configuration]} */ [, sizes]) =>
    Object.entries(sizes).every(([name, size]) => (configuration[name] ?? fields[name].default) === size);
  return Object.entries(models).find(same)?.[0] ?? "";
}

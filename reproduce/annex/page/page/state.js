// What the page shows, kept in the address: view, artifact, cluster with its changed numbers, configuration, schedules,
// tokens of the whole run, the price of a GPU hour, the field that is swept, a configuration to compare with, and the
// lesson with the step of its slider, a claim, and a paper.
const GPT_3 = { layers: 96, hidden: 12288, heads: 96, p: 12, t: 8, d: 1, v: 1, b: 1, B: 60 };
export const START = {
  view: "home",
  artifact: "fig_interleaved",
  cluster: "", // the paper's own, or the usual one
  changes: /** @type {Record<string, number>} */ ({}),
  text: "",
  beside: "",
  tokens: "300B",
  price: "",
  sweep: "",
  lesson: "bubble",
  step: "",
  claim: "",
  paper: "sc21",
  against: /** @type {{ configuration?: Configuration }} */ ({}),
  configuration: /** @type {Configuration} */ (GPT_3),
};
const VIEWS = ["home", "figure", "whatif", "timeline", "lessons", "paper"];

/** What an address says, and what is wrong with it in a sentence, or ""; what is wrong is left out. @param {string} hash @returns {[typeof START, string]} */
export function read(hash) {
  const state = /** @type {any} */ (structuredClone(START));
  const wrong = [];
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!Object.hasOwn(START, key)) wrong.push(`${key} is unknown, needs one of ${Object.keys(START).join(", ")}`);
    else if (key === "view" && !VIEWS.includes(text))
      wrong.push(`view=${text} is unknown, needs one of ${VIEWS.join(", ")}`);
    else if (typeof state[key] === "string") state[key] = text;
    else
      try {
        state[key] = Object.fromEntries(Object.entries(JSON.parse(text)));
      } catch {
        wrong.push(`${key}=${text} is not JSON`);
      }
  }
  // An address of before names no view for a figure.
  if (state.view === "home" && !/(^#?|&)view=home/.test(hash) && hash.length > 1) state.view = "figure";
  return [state, wrong.length ? `left out of the address: ${wrong.join("; ")}` : ""];
}

/** The address of what is shown: what is not as at the start. @param {typeof START} state */
export function write(state) {
  const words = new URLSearchParams();
  const said = (/** @type {any} */ value) => (typeof value === "object" ? JSON.stringify(value) : value);
  const usual = /** @type {any} */ (START);
  for (const [key, value] of Object.entries(state)) if (said(value) !== said(usual[key])) words.set(key, said(value));
  if (state.view === "home" && words.size) words.set("view", "home");
  return `#${words}`;
}

// What the page shows, kept in the address: view, artifact, cluster with its changed numbers, configuration, schedules,
// tokens of the whole run and the price of a GPU hour.
export const START = {
  view: "figure", artifact: "fig_interleaved", cluster: "selene", changes: {}, text: "", beside: "", tokens: "300B", price: "",
  configuration: { layers: 96, hidden: 12288, heads: 96, p: 12, t: 8, d: 1, v: 1, b: 1, B: 60 },
};

const VIEWS = ["figure", "whatif", "timeline"];

// What an address says, and what is wrong with it in a sentence, or ""; what is wrong is left out.
export function read(hash) {
  const state = structuredClone(START), wrong = [];
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!Object.hasOwn(START, key)) wrong.push(`${key} is unknown, needs one of ${Object.keys(START).join(", ")}`);
    else if (key === "view" && !VIEWS.includes(text)) wrong.push(`view=${text} is unknown, needs one of ${VIEWS.join(", ")}`);
    else if (typeof START[key] === "string") state[key] = text;
    else
      try {
        state[key] = Object.fromEntries(Object.entries(JSON.parse(text)));
      } catch {
        wrong.push(`${key}=${text} is not JSON`);
      }
  }
  return [state, wrong.length ? `left out of the address: ${wrong.join("; ")}` : ""];
}

export function write(state) {
  const words = new URLSearchParams();
  for (const key of Object.keys(START)) {
    const text = typeof state[key] === "object" ? JSON.stringify(state[key]) : state[key];
    const usual = typeof START[key] === "object" ? JSON.stringify(START[key]) : START[key];
    if (text !== usual) words.set(key, text);
  }
  return "#" + words.toString();
}

// What the page shows, kept in the address: view, artifact, cluster with its changed numbers, configuration, schedules.
export const START = {
  view: "figure", artifact: "fig_interleaved", cluster: "selene", changes: {}, text: "", beside: "",
  configuration: { layers: 96, hidden: 12288, heads: 96, p: 12, t: 8, d: 1, v: 1, b: 1, B: 60 },
};
const VIEWS = ["figure", "whatif", "timeline"];

export function read(hash) {
  const state = structuredClone(START);
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of ["view", "artifact", "cluster", "text", "beside"]) if (given.has(key)) state[key] = given.get(key);
  if (!VIEWS.includes(state.view)) state.view = START.view;
  for (const key of ["changes", "configuration"])
    if (given.has(key)) {
      try {
        state[key] = Object.fromEntries(Object.entries(JSON.parse(given.get(key))));
      } catch {
        throw new Error(`the address has ${key}=${given.get(key)}, which is not JSON; it is left out`);
      }
    }
  return state;
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

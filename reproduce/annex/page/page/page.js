// What the page shows (`state`, which is kept in the address), what Python offers, and how one asks it.
import { byId } from "./elements.js";
import { ask } from "./python.js";
import * as address from "./state.js";

let state = address.START;
let complaint = ""; // about the address
/** @type {Offer | undefined} */
let offer;
/** @type {Record<string, number>} */
const asked = {};
/** @type {() => void} */
let refresh = () => {};

export const current = () => state;
export const offered = () => offer;

/** @param {() => void} show called after each change */
export function onChange(show) {
  refresh = show;
}

/** @param {Offer} answer */
export function setOffer(answer) {
  offer = answer;
}

/** What is shown changes, in part. @param {Partial<typeof address.START>} part */
export function change(part) {
  state = { ...state, ...part };
  if (complaint) fail((complaint = ""));
  refresh();
}

/** @param {Configuration} part */
export const configure = (part) => change({ configuration: { ...state.configuration, ...part } });

/** The cluster as Python takes it. */
export const cluster = () => ({ cluster: state.cluster, changes: state.changes, text: state.text });

/** Whether the cluster is a shipped one without a change. */
export const isShipped = () => !state.text && !Object.keys(state.changes).length;

export function readAddress() {
  [state, complaint] = address.read(location.hash);
  fail(complaint);
}

/** Go where a link leads: what it names changes. @param {string} href */
export function follow(href) {
  const [to] = address.read(href);
  const named = [...new URLSearchParams(href.slice(1)).keys()];
  const part = Object.fromEntries(named.map((key) => [key, /** @type {any} */ (to)[key]]));
  history.pushState(null, "", location.href);
  change({ claim: "", ...part, view: to.view });
}

export function writeAddress() {
  const hash = address.write(state);
  if (hash !== location.hash) history.replaceState(null, "", hash === "#" ? location.pathname + location.search : hash);
}

/** Say what is wrong, or with "" that nothing is. @param {string} message */
export function fail(message) {
  byId("error").textContent = message;
  byId("error").hidden = !message;
}

/**
 * Show what `answer` resolves to, unless something newer of the same kind was asked meanwhile; an error leaves what is
 * shown, and resolves to "failed".
 *
 * @template Answer
 * @param {string} kind
 * @param {Promise<Answer>} answer
 * @param {(answer: Answer) => void} show
 */
export async function newest(kind, answer, show) {
  const turn = (asked[kind] = (asked[kind] ?? 0) + 1);
  try {
    const found = await answer;
    if (turn !== asked[kind]) return;
    fail(complaint);
    show(found);
  } catch (error) {
    if (turn !== asked[kind]) return;
    fail(/** @type {Error} */ (error).message);
    return "failed";
  }
}

/**
 * Ask Python, and show the answer as `newest` does.
 *
 * @param {string} kind
 * @param {string} name
 * @param {object} given
 * @param {(answer: any) => void} show
 */
export const update = (kind, name, given, show) => newest(kind, ask(name, given), show);

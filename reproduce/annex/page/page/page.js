// What the page shows (`state`, which is kept in the address), what Python offers, and how one asks it.
import { byId } from "./elements.js";
import { ask } from "./python.js";
import * as address from "./state.js";

let state = address.START;
let complaint = ""; // about the address
/** @type {any} */
let offer;
/** @type {Record<string, number>} */
const asked = {};
let [hash, pending] = ["", 0]; // the address as it was read or written; what is still to be done later
let refresh = () => {};

export const current = () => state;

/** What Python offers, once it has said so. @returns {Offer | undefined} */
export const offered = () => offer;

/** @param {Offer} answer */
export const setOffer = (answer) => (offer = answer);

/** @param {() => void} show called after each change */
export const onChange = (show) => (refresh = show);

/** What is shown changes, in part. @param {Partial<typeof address.START>} part */
export function change(part) {
  state = { ...state, ...part };
  if (complaint) complain("");
  refresh();
}

/** @param {Configuration} part */
export const configure = (part) => change({ configuration: { ...state.configuration, ...part } });

/** The cluster as Python takes it. */
export const cluster = () => ({ cluster: state.cluster, changes: state.changes, text: state.text });

/** The name of the machine of what is no paper's. */
export const machine = () => state.cluster || offer?.usual || "";

/** The configuration and its cluster as Python takes them. */
export const point = () => ({ configuration: state.configuration, ...cluster() });

/** Whether the cluster is a shipped one without a change. */
export const isShipped = () => !state.text && !Object.keys(state.changes).length;

export function readAddress() {
  const [read, why] = address.read((hash = location.hash));
  state = read;
  complain(why);
}

/** Go where a link leads: what it names changes. @param {string} href */
export function follow(href) {
  const to = /** @type {any} */ (address.read(href)[0]);
  const named = [...new URLSearchParams(href.slice(1)).keys()];
  writeAddress();
  history.pushState(null, "", location.href);
  change({ claim: "", ...Object.fromEntries(named.map((key) => [key, to[key]])), view: to.view });
}

export function writeAddress() {
  const now = address.write(state);
  if (now === location.hash || location.hash !== hash) return; // who changed it is heard in an event of its own
  history.replaceState(null, "", now === "#" ? location.pathname + location.search : now);
  hash = location.hash;
}

export const isPending = () => pending > 0;

export const QUIET_MS = 50; // without a change: then what can wait is done

/** The next turn of a kind: what has an earlier one is not done any more. @param {string} kind */
export const next = (kind) => (asked[kind] = (asked[kind] ?? 0) + 1);

/** Do something once what was just changed is on the screen, unless something newer of its kind comes meanwhile. @param {string} kind @param {() => unknown} then @param {number} [wait] milliseconds */
export function later(kind, then, wait = 0) {
  const turn = next(kind);
  pending++;
  const due = () => {
    pending--;
    if (turn === asked[kind]) then();
  };
  requestAnimationFrame(() => setTimeout(due, wait));
}

/** Say what is wrong with the address, until something else is shown. @param {string} why */
export const complain = (why) => fail((complaint = why));

/** Say what is wrong, or with "" that nothing is. @param {string} message */
export function fail(message) {
  byId("error").textContent = message;
  byId("error").hidden = !message;
}

/**
 * Show what `answer` resolves to, unless something newer of the same kind was asked meanwhile; an error is told, leaves
 * what is shown. Resolves to "old" if something newer was asked.
 *
 * @param {string} kind @param {Promise<any>} answer @param {(answer: any) => unknown} show @param {(why: string) => unknown} tell
 */
export async function newest(kind, answer, show, tell = fail) {
  const turn = next(kind);
  const [found, error] = await answer.then(
    (it) => [it],
    (wrong) => [null, wrong],
  );
  if (turn !== asked[kind]) return "old";
  fail(complaint);
  if (error) tell(error.message);
  else show(found);
}

/** Ask Python, and show the answer as `newest` does. @param {string} kind @param {string} name @param {object} given @param {(answer: any) => unknown} show @param {(why: string) => unknown} [tell] */
export const update = (kind, name, given, show, tell) => newest(kind, ask(name, given), show, tell);

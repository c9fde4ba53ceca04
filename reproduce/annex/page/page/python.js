// Python, in a worker. The page starts the first one itself, before anything else.
const QUIET_MS = 150; // an answer that comes sooner is not announced
const FETCHING = "Loading the simulator, 14 MB the first time";

/** @type {Worker | undefined} */
let worker;
/** @type {Map<number, { message: object, resolve: (answer: any) => void, reject: (error: Error) => void }>} */
let waiting = new Map();
let [number, loaded, timer] = [0, false, 0];
/** @type {Status} */
let status;
/** @type {(status: Status) => void} */
let listener = () => {};

/** @param {(status: Status) => void} show */
export function onStatus(show) {
  listener = show;
  show(status);
}

/** Asks Python: a promise of its answer, rejected with one line for a user's mistake, or if Python cannot be started. @param {string} name @param {object} given @returns {Promise<any>} */
export function ask(name, given) {
  return new Promise((resolve, reject) => {
    const message = { id: ++number, name, arguments: given };
    waiting.set(number, { message, resolve, reject });
    worker?.postMessage(message);
    if (loaded) timer ||= setTimeout(() => say("Simulating", true), QUIET_MS);
  });
}

export const isAsking = () => waiting.size > 0;

/** Begins again with a new Python, for 'Cancel'. */
export function restart() {
  waiting = new Map(); // what was asked is never answered
  use(newWorker());
}

/** Makes a worker the one that answers, in place of the one before. @param {Worker} next */
function use(next) {
  worker?.terminate();
  worker = next;
  loaded = false;
  say(FETCHING, true, 0.1);
  worker.onerror = (event) => failed(event.message || "the worker could not be started");
  worker.onmessage = ({ data }) => {
    performance.mark(data.progress ?? `answered ${data.id}`); // for `reproduce explore --time`
    if (data.progress) say(data.progress, true, data.share);
    else if (data.failed && !loaded && data.from_snapshot) {
      use(newWorker("?plain")); // this browser cannot use the snapshot: start from the beginning
      for (const { message } of waiting.values()) worker?.postMessage(message);
    } else if (data.failed && !loaded) failed(`Python could not be started: ${data.failed}`);
    else settle(data.id, data.failed ? { error: `internal error: ${data.failed}` } : JSON.parse(data.text));
  };
}

/** @param {number} id @param {{ answer?: any, error?: string }} result */
function settle(id, { answer, error }) {
  loaded = true;
  const asked = waiting.get(id);
  waiting.delete(id);
  if (!waiting.size) {
    clearTimeout(timer);
    timer = 0;
    say("Simulator ready", false);
  }
  if (error) asked?.reject(new Error(error));
  else asked?.resolve(answer);
}

/** @param {string} message */
function failed(message) {
  say("", false);
  for (const { reject } of waiting.values()) reject(new Error(message));
  waiting.clear();
}

/** @param {string} message @param {boolean} busy @param {number} [share] */
function say(message, busy, share) {
  if (message !== status?.message) listener((status = { message, busy, share, loaded }));
}

use(globalThis.firstWorker);

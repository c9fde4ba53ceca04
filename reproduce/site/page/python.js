// Python, in a worker. The page starts the first one itself, before anything else.
const QUIET_MS = 150; // an answer that comes sooner is not announced
let worker, waiting, number = 0, timer, loaded, status, listener = () => {};

export function onStatus(show) {
  listener = show;
  show(status);
}

// Asks Python: a promise of its answer, rejected with one line for a user's mistake, or if Python cannot be started.
export function ask(name, given) {
  return new Promise((resolve, reject) => {
    const message = { id: ++number, name, arguments: given };
    waiting.set(number, { message, resolve, reject });
    worker.postMessage(message);
    if (loaded) timer ??= setTimeout(() => say("Simulating", true), QUIET_MS);
  });
}

// Begins again with a new Python, for 'Cancel'.
export function restart() {
  waiting = new Map(); // what was asked is never answered
  use(newWorker());
}

// Makes a worker the one that answers, in place of the one before.
function use(next) {
  worker?.terminate();
  worker = next;
  loaded = false;
  say("Loading Python (about 20 MB, once)", true, 0.1);
  worker.onerror = (event) => failed(event.message || "the worker could not be started");
  worker.onmessage = ({ data }) => {
    performance.mark(data.progress ?? `answered ${data.id}`); // for `reproduce site --time`
    if (data.progress) return say(data.progress, true, data.share);
    if (data.failed && loaded) data.text = JSON.stringify({ error: `internal error: ${data.failed}` });
    else if (data.failed && data.from_snapshot) { // this browser cannot use the snapshot: start from the beginning
      use(newWorker("?plain"));
      return waiting.forEach(({ message }) => worker.postMessage(message));
    } else if (data.failed) return failed(`Python could not be started: ${data.failed}`);
    loaded = true;
    const { resolve, reject } = waiting.get(data.id), { answer, error } = JSON.parse(data.text);
    waiting.delete(data.id);
    if (!waiting.size) {
      timer = clearTimeout(timer);
      say("Ready", false);
    }
    if (error) reject(new Error(error)); else resolve(answer);
  };
}

function failed(message) {
  say("", false);
  waiting.forEach(({ reject }) => reject(new Error(message)));
  waiting.clear();
}

function say(message, busy, share) {
  if (message === status?.message) return;
  status = { message, busy, share, loaded };
  listener(status);
}

waiting = new Map();
use(globalThis.firstWorker);

// Starts the page and its views; every number comes from Python in a worker.
import * as cluster from "./cluster.js";
import { byId, inputOf } from "./elements.js";
import * as figure from "./figure.js";
import * as lessons from "./lessons.js";
import * as page from "./page.js";
import { ask, onStatus, restart } from "./python.js";
import * as timelines from "./timelines.js";
import * as whatif from "./whatif.js";

/** @type {Record<string, { refresh: () => unknown, listen: () => void }>} */
const VIEWS = { figure, whatif, timeline: timelines, lessons };
const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[role=tab]")]);

function refresh() {
  page.writeAddress();
  for (const tab of tabs) {
    const chosen = tab.dataset.view === page.current().view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(`view-${tab.dataset.view}`).hidden = !chosen;
  }
  cluster.showName();
  return VIEWS[page.current().view].refresh();
}

/** @param {Status} status */
function showStatus({ message, busy, share, loaded }) {
  byId("message").textContent = message;
  byId("loading").hidden = !busy;
  byId("cancel").hidden = !busy || !loaded;
  if (share) inputOf("loading").value = String(share);
  else byId("loading").removeAttribute("value");
}

function listen() {
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => page.change({ view: tab.dataset.view }));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  for (const part of [cluster, ...Object.values(VIEWS)]) part.listen();
  byId("cancel").addEventListener("click", () => {
    restart();
    void begin();
  });
  window.addEventListener("hashchange", () => {
    page.readAddress();
    refresh();
    void cluster.showNumbers();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
}

async function begin() {
  const first = [refresh(), cluster.showNumbers()]; // asked before anything else, so answered first
  try {
    page.setOffer(await ask("start", {}));
  } catch (error) {
    return page.fail(/** @type {Error} */ (error).message);
  }
  cluster.fill(/** @type {Offer} */ (page.offered()).clusters);
  whatif.fill();
  timelines.fill();
  lessons.fill();
  await Promise.all(first);
  await figure.fill();
}

page.readAddress();
page.onChange(refresh);
listen();
onStatus(showStatus);
Object.assign(window, { ptdp: { ask } }); // for tests, and for the curious
void begin();

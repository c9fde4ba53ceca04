// Starts the page and its views; every number comes from Python in a worker.
import { byId, mark } from "./elements.js";
import * as figure from "./figure.js";
import * as home from "./home.js";
import * as lessons from "./lessons.js";
import * as machine from "./machine.js";
import * as page from "./page.js";
import { ask, isAsking, onStatus, restart } from "./python.js";
import * as timelines from "./timelines.js";
import * as whatif from "./whatif.js";

// A paper on one screen, which the HTML has complete: the one that the address names, or else the first.
const papers = /** @type {any[]} */ ([...byId("view-paper").children]);
const showPaper = () => {
  const shown = papers.find(({ dataset }) => dataset.paper === page.current().paper) ?? papers[0];
  for (const each of papers) each.hidden = each !== shown;
};
/** @type {Record<string, { make?: () => void, refresh: () => unknown, fill?: () => unknown }>} */
const VIEWS = { home, figure, whatif, timeline: timelines, lessons, paper: { refresh: showPaper } };
let shown = "";

function refresh() {
  page.later("address", page.writeAddress, page.QUIET_MS);
  const { view } = page.current();
  for (const name of Object.keys(VIEWS)) byId(`view-${name}`).hidden = name !== view;
  for (const tab of document.querySelectorAll(".tabs a")) mark(tab, tab.getAttribute("data-view") === view, "page");
  if (shown && shown !== view) scrollTo(0, 0);
  shown = view;
  machine.refresh();
  return VIEWS[view].refresh();
}

/** @param {Status} status */
function showStatus({ message, busy, share, loaded }) {
  byId("message").textContent = message;
  byId("state").toggleAttribute("data-ready", loaded && !busy);
  byId("cancel").hidden = !busy || !loaded;
  byId("load").hidden = loaded;
  if (share) byId("loading").value = share;
}

/** A link in the page changes what it names, and leaves all else as it is. @param {any} event */
function follow(event) {
  const link = event.target.closest?.("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const href = link.getAttribute("href");
  const place = byId(href.slice(1)); // of the same view
  if (place) place.scrollIntoView();
  else page.follow(href);
}

async function begin() {
  const first = refresh(); // asked before anything else, so answered first
  try {
    page.setOffer(await ask("start", {}));
  } catch (error) {
    return page.fail(/** @type {Error} */ (error).message);
  }
  machine.fill();
  for (const view of Object.values(VIEWS)) void view.fill?.();
  await first;
}

page.readAddress();
page.onChange(refresh);
for (const view of [...Object.values(VIEWS), machine]) view.make?.();
document.addEventListener("click", follow);
byId("cancel").addEventListener("click", () => {
  restart();
  void begin();
});
window.addEventListener("hashchange", () => {
  page.readAddress();
  refresh();
});
onStatus(showStatus);
Object.assign(window, { ptdp: { ask, isBusy: () => isAsking() || page.isPending() } }); // for tests, and for the curious
void begin();

// A paper on one screen, which the HTML has complete: the answer, and its figures and tables with their claims.
import { current } from "./page.js";

const pages = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#view-paper > section")]);

export function make() {}

export function fill() {}

/** Show the paper that the address names, or else the first. */
export function refresh() {
  const shown = pages.find((page) => page.dataset.paper === current().paper) ?? pages[0];
  for (const page of pages) page.hidden = page !== shown;
}

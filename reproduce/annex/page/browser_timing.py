"""How long the page makes people wait, measured in Chromium on this machine with all files beside the page.

`measure` builds the page, opens it in a fresh browser each time, and changes it as a person would: through its fields.
"""

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import quote

from reproduce.annex.page.build import build
from reproduce.annex.page.serve import served
from results.records.errors import UnavailableError

OPENINGS, CHANGES = 5, 24
PAUSE_MS = 200  # between changes of a field, in which the page does what follows from the one before, as people type
START_MS = 120_000
LIVE = "#home-chart svg:not(.published)"  # a chart of simulated values
BIG = {"layers": 128, "hidden": 12288, "heads": 96, "p": 64, "t": 8, "d": 1, "v": 1, "b": 1, "B": 512}
# The page's marks while it opens (python.js), and what it did from the mark before to this one.
PARTS = {
    "Starting Python": "page, runtime fetched and checked, its JavaScript compiled",
    "Loading the simulator": "WebAssembly compiled, memory of the snapshot put in place",
    "answered 1": "first simulation",
}
MARKS = "(names) => names.map((name) => performance.getEntriesByName(name, 'mark')[0]?.startTime ?? 0)"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# Runs in a page before all else: resolves with the time at which an element that a selector names is on the screen.
SHOWN = """globalThis.shown = new Promise((resolve) =>
  new MutationObserver((_, observer) => {
    if (!document.querySelector(%s)) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
  }).observe(document, { childList: true, subtree: true }),
);"""
# Sets a field; milliseconds from its event until an element shows something else, to the end of the frame with it: a
# message that is sent in a frame comes once its styles, places and paint are made, before what the page does next.
CHANGE = """([field, value, shown, event]) => new Promise((resolve) => {
  const input = document.querySelector(field), { port1, port2 } = new MessageChannel(), start = performance.now();
  port1.onmessage = () => resolve(performance.now() - start);
  const observer = new MutationObserver(() => {
    observer.disconnect();
    requestAnimationFrame(() => port2.postMessage(0));
  });
  observer.observe(document.querySelector(shown), { childList: true, subtree: true });
  input.value = value;
  input.dispatchEvent(new Event(event, { bubbles: true }));
})"""
# Presses keys on the slider of the timeline; milliseconds from each to the end of the frame that shows it.
FRAMES = """async (keys) => {
  const slider = document.querySelector("#time"), times = [];
  for (const key of keys) {
    const start = performance.now();
    slider.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    times.push(performance.now() - start);
  }
  return times;
}"""


class PageTiming(NamedTuple):
    """What was waited for, milliseconds each time, and the most that the median should be on a machine at rest."""

    what: str
    milliseconds: Sequence[float]
    limit: float

    def __str__(self) -> str:
        middle, worst = median(self.milliseconds), max(self.milliseconds)
        verdict = "ok" if middle <= self.limit else "too slow"
        times = f"median {middle:7.0f} ms, worst {worst:7.0f} ms of {len(self.milliseconds):3d}"
        return f"{self.what:66} {times}  [measured]; at most {self.limit:.0f}: {verdict}"


def measure() -> list[str]:
    """The timings and the size of what is loaded, a line each. Raises `UnavailableError` without browser or npm."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        raise UnavailableError("--time needs Chromium and playwright; try apt install chromium, pip install playwright")
    with tempfile.TemporaryDirectory(prefix="ptdp-") as name:
        folder = Path(name)
        size = build(folder, offline=True, snapshot=True).size
        packed = sum(len(gzip.compress(path.read_bytes())) for path in folder.rglob("*") if path.is_file())
        with served(folder) as address, sync_playwright() as started:
            browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
            load = os.getloadavg()[0]  # of the last minute, which the build was part of
            opening, parts = _openings(browser, address)
            timings = [*opening, _redraws(browser, address), _changes(browser, address), *_timeline(browser, address)]
            browser.close()
    load_line = f"load of this machine's {os.cpu_count()} processors when it began: {load:.1f}"
    return [
        *map(str, timings),
        *parts,
        load_line,
        f"loaded: {size / 1e6:.1f} MB, {packed / 1e6:.1f} MB from a server that compresses",
    ]


def _open(browser: Any, address: str, shown: str) -> Any:
    """A fresh page without anything cached, as soon as it shows an element: `shown` is there when that was."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(SHOWN % json.dumps(shown))
    page.goto(address)
    page.wait_for_selector(shown, timeout=START_MS, state="attached")
    return page


def _ready(page: Any) -> None:
    page.locator("#message", has_text="Simulator ready").wait_for(timeout=START_MS)


def _openings(browser: Any, address: str) -> tuple[list[PageTiming], list[str]]:
    """The times until something is painted and until Figure 12 is drawn, and a line for each part of the second."""
    painted, times, marks = [], [], []
    for _ in range(OPENINGS):
        page = _open(browser, address, LIVE)
        times.append(float(page.evaluate("shown")))  # since its navigation began
        painted.append(float(page.evaluate(PAINTED)))
        marks.append([0.0, *page.evaluate(MARKS, list(PARTS)), times[-1]])
        page.close()
    parts = [
        f"    {what:62} median {median(ends[i + 1] - ends[i] for ends in marks):7.0f} ms"
        for i, what in enumerate([*PARTS.values(), "drawing"])
    ]
    published = PageTiming("opening, until the published points are painted", painted, 300)
    return [published, PageTiming("opening, until Figure 12 is drawn", times, 1500)], parts


def _redraws(browser: Any, address: str) -> PageTiming:
    page = _open(browser, f"{address}#view=figure", "#chart svg")
    _ready(page)
    page.click("#cluster summary")
    box = "[aria-label='HCA bandwidth in GB/s']"
    page.wait_for_selector(box, timeout=START_MS)
    times = [page.evaluate(CHANGE, [box, str((130 + i) / 10), "#chart", "change"]) for i in range(CHANGES)]
    page.close()
    return PageTiming("Figure 12 again, after a changed number of the cluster", times, 200)


def _changes(browser: Any, address: str) -> PageTiming:
    page = _open(browser, f"{address}#view=whatif", "#answer dd")
    _ready(page)
    times = []
    for i in range(CHANGES):
        times.append(page.evaluate(CHANGE, ["#batch", str(48 + 12 * i), "#number", "input"]))
        page.wait_for_timeout(PAUSE_MS)
    page.close()
    return PageTiming("what if: from another batch to the frame with its number", times, 20)


def _timeline(browser: Any, address: str) -> list[PageTiming]:
    link = f"{address}#view=timeline&configuration={quote(json.dumps(BIG))}"
    drawn = []
    for _ in range(OPENINGS):
        page = _open(browser, link, "#timelines svg")
        drawn.append(float(page.evaluate("shown")))
        if len(drawn) < OPENINGS:
            page.close()
    keys = ["ArrowRight"] * 20 + ["PageUp"] * 20 + ["ArrowLeft"] * 20
    frames = page.evaluate(FRAMES, keys)
    page.close()
    where = "timeline of 64 ranks x 512 microbatches"
    return [
        PageTiming(f"opening, until the {where} is drawn", drawn, 10_000),
        PageTiming(f"a step of the playhead in the {where}", frames, 50),
    ]

"""Takes the screenshots in docs/pictures (`make pictures`): the page for a browser, light and dark, and the report."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from reproduce.annex.page.build import build
from reproduce.annex.page.serve import served
from reproduce.cli import main as reproduce

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH = 900  # CSS pixels
LIVE = "#chart svg[aria-label]:not(.published)"  # a chart of simulated values


def take(page: Page, first: str, last: str, name: str) -> None:
    """Save what is seen of a page from its element `first` to its element `last`."""
    upper, lower = (page.locator(element).bounding_box() for element in (first, last))
    assert upper
    assert lower
    top, bottom = upper["y"] - 8, lower["y"] + lower["height"] + 8
    page.screenshot(path=PICTURES / name, clip={"x": 0, "y": top, "width": WIDTH, "height": bottom - top})
    page.close()


def main() -> None:
    """Make the page and the report of the committed results in a temporary folder, and take their pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started:
        folder = Path(name)
        build(folder, offline=True, snapshot=True)
        reproduce(["report", "--results", str(ROOT / "results" / "reference"), "--out", str(folder / "report.html")])
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        size = {"width": WIDTH, "height": 2 * WIDTH}
        with served(folder) as address:
            for scheme, picture in (("light", "page.png"), ("dark", "page_dark.png")):
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.goto(address)
                page.wait_for_selector(LIVE, timeout=120_000)
                page.locator("#message", has_text="Ready").wait_for(timeout=120_000)
                take(page, "nav[role=tablist]", LIVE, picture)
            page = browser.new_page(viewport=size, color_scheme="light")
            page.goto(f"{address}report.html")
            take(page, "h1", "#claims tbody tr:visible >> nth=1", "report.png")
        browser.close()


if __name__ == "__main__":
    main()

"""Takes the screenshots in docs/pictures (`make pictures`): the page's views, on a desk and a phone, and the report."""

import io
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from reproduce.annex.page.build import build
from reproduce.annex.page.serve import served
from reproduce.cli import main as reproduce

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH = 1120  # CSS pixels
LIVE = "#home-chart svg:not(.published)"  # a chart of simulated values
VIEWS = ("home", "figure", "whatif", "timeline", "lessons")
SIZES = {"": 1280, "_phone": 390}
COLOURS = 96  # of a picture of a view, which is to stay small


def view(browser: Browser, address: str, name: str, scheme: str) -> None:
    """Save a whole view at both widths, with few colours."""
    for ending, width in SIZES.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(f"{address}#view={name}")
        page.locator("#message", has_text="Simulator ready").wait_for(timeout=120_000)
        page.evaluate("ptdp.ask('start', {}).then(() => new Promise((done) => setTimeout(done, 500)))")
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        path = PICTURES / f"{name}{'_dark' if scheme == 'dark' else ''}{ending}.png"
        shot.quantize(COLOURS).save(path, optimize=True)
        page.close()


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
                page.locator("#message", has_text="Simulator ready").wait_for(timeout=120_000)
                take(page, "header", ".tally", picture)
                for name in VIEWS:
                    view(browser, address, name, scheme)
            page = browser.new_page(viewport=size, color_scheme="light")
            page.goto(f"{address}report.html")
            take(page, "h1", "#claims tbody tr:visible >> nth=1", "report.png")
        browser.close()
        own_points(folder)


def own_points(folder: Path) -> None:
    """The figure of `figures.md`, of the points that it shows."""
    rows = re.findall(r"^    (series,.*|Inter.*|Without.*)$", (ROOT / "docs/figures.md").read_text(), re.MULTILINE)
    (folder / "mine.csv").write_text("\n".join(rows))
    results = ["--results", str(folder / "runs"), "-q"]
    reproduce(["fig_interleaved", *results])
    points = ["--points", str(folder / "mine.csv"), "--label", "our cluster", "--format", "png"]
    reproduce(["plot", "fig_interleaved", *points, *results])
    drawn = Image.open(folder / "runs/fig_interleaved/simulated/overlay.png").convert("RGB")
    drawn.quantize(COLOURS).save(PICTURES / "own_points.png", optimize=True)


if __name__ == "__main__":
    main()

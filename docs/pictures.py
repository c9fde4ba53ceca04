"""Takes the pictures in docs/pictures (`make pictures`): of the page, on a desk and a phone, the report, the guides."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib.font_manager import findfont
from pandas import DataFrame
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Browser, Page, sync_playwright

from reproduce.annex.accuracy import error_figures
from reproduce.annex.page.build import build
from reproduce.annex.page.serve import served
from reproduce.cli import main as reproduce
from reproduce.output import colours
from reproduce.output.theme import figure_bytes, style
from results.records import errors

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH = 1120  # CSS pixels
LIVE = "#home-chart svg:not(.published)"  # a chart of simulated values
VIEWS = ("home", "figure", "whatif", "timeline", "lessons")
SIZES = {"": 1280, "_phone": 390}
COLOURS = 96  # of a picture, which is to stay small


def view(browser: Browser, address: str, name: str, scheme: str) -> None:
    """Save a whole view at both widths, with few colours."""
    for ending, width in SIZES.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(f"{address}#view={name}")
        page.locator("#message", has_text="Simulator ready").wait_for(timeout=120_000)
        page.evaluate("ptdp.ask('start', {}).then(() => new Promise((done) => setTimeout(done, 500)))")
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        keep(shot, f"{name}{'_dark' if scheme == 'dark' else ''}{ending}.png")
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
        guides(folder)


def keep(drawn: Image.Image, name: str) -> None:
    """Save a picture with few colours, rare ones among them: those of a line or a sign mean something."""
    few = drawn.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=3)
    few.save(PICTURES / name, optimize=True)


def guides(folder: Path) -> None:
    """The pictures of the guides, each by the commands or from the numbers of its page."""
    rows = re.findall(r"^    (series,.*|Inter.*|Without.*)$", (ROOT / "docs/figures.md").read_text(), re.MULTILINE)
    (folder / "mine.csv").write_text("\n".join(rows))
    results = ["--results", str(folder / "runs"), "-q"]
    reproduce(["fig_interleaved", *results])
    reproduce(["fig_interleaved", "--cluster", "h100-4hca", *results])
    points = ["--points", str(folder / "mine.csv"), "--label", "our cluster"]
    here, there = (
        folder / "runs/fig_interleaved/simulated",
        folder / "runs/clusters/h100-4hca/fig_interleaved/simulated",
    )
    for name, options in (("own_points", points), ("tutorial", ["--with", str(there)])):
        reproduce(["plot", "fig_interleaved", *options, "--format", "png", *results])
        keep(Image.open(here / "overlay.png"), f"{name}.png")
    keep(Image.open(here / "figure.png"), "start.png")
    plan = "plan --model llama-3-70b --gpus 64..1024 --batch 4M --cluster h100 --tokens 1T --deadline 60d --plot"
    reproduce([*plan.split(), str(folder / "plan.png"), *results])
    keep(Image.open(folder / "plan.png"), "questions.png")
    keep(gpu_errors(), "gpus.png")
    keep(gate_says(folder), "gate.png")


def gate_says(folder: Path) -> Image.Image:
    """What the commands of the gate's page print."""
    (block, *_) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/gate.md").read_text(), re.DOTALL)
    program = (
        'git() { command git -c user.name=a -c user.email=a@b.c "$@"; }\n'
        f'reproduce() {{ "{sys.executable}" -m ptdp "$@"; }}\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-c", program + block], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == errors.REGRESSED, done.stderr
    return terminal("$ reproduce gate --project . --base HEAD~1 --budget 20s --results ../results\n" + done.stdout)


def gpu_errors() -> Image.Image:
    """How far off steps of the engine on GPUs were predicted, by run."""
    reference = ROOT / "results/reference/gpu"
    first, later = (json.loads((reference / f"{name}.json").read_text()) for name in ("first_run", "later_runs"))
    rows = [
        {"group": group, "error": seconds / case["median"] - 1}
        for group, cases, predicted in (
            ("first H100", first["cases"], lambda case: case.get("predicted", {}).get("engine", {}).get("seconds")),
            (
                "second H100, later sources",
                later["runs"][0]["cases"],
                lambda case: case.get("sealed_prediction", {}).get("time"),
            ),
        )
        for case in cases.values()
        if (seconds := predicted(case)) and "median" in case
    ]
    with style():
        lines = ["simulated with h100 before the steps were measured"]
        figure = error_figures.errors(DataFrame(rows), "predicted step times", lines)
        return Image.open(io.BytesIO(figure_bytes(figure, "png", "steps on GPUs")))


def terminal(text: str) -> Image.Image:
    """A text as a terminal shows it, dark."""
    font = ImageFont.truetype(findfont("DejaVu Sans Mono"), 22)
    lines = text.rstrip().splitlines()
    size = int(max(map(font.getlength, lines))) + 48, 30 * len(lines) + 40
    image = Image.new("RGB", size, colours.TERMINAL[0])
    ImageDraw.Draw(image).multiline_text((24, 18), "\n".join(lines), colours.TERMINAL[1], font, spacing=8)
    return image


if __name__ == "__main__":
    main()

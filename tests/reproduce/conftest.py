"""Fixtures: a small artifact that counts its evaluations, results made by hand, the simulated Figure 12, a browser."""

import json
import shutil
from dataclasses import replace

import pytest

from reproduce.cli import main
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Claim, Judgement
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Point, Sweep
from reproduce.papers.sc21 import fig_interleaved
from reproduce.running import runner
from results.records import Metric, PaperValue, PointResult
from results.records.errors import USAGE


class Counter:
    """A `derive` that counts; `fail_at` maps the number of a call to what it raises."""

    def __init__(self):
        self.calls: list[str] = []
        self.fail_at: dict[int, BaseException] = {}

    def derive(self, point):
        self.calls.append(point.key)
        if error := self.fail_at.get(len(self.calls)):
            raise error
        x = point.parameters["x"]
        return {"square": Metric(x * x, "s", "derived")}


@pytest.fixture
def counter():
    return Counter()


@pytest.fixture
def small(counter):
    """Five derived points, without a figure."""

    def points():
        return tuple(
            Point(f"x{x}", "squares", f"x={x}", {"x": x}, {"square": PaperValue(x * x + 1, "s", "text")})
            for x in range(1, 6)
        )

    def judge(results):
        return Judgement("contradicted", f"x=5 gives {results.value('x5', 'square')}")

    return Artifact(
        id="fig_squares",
        label="Figure 0",
        section="0",
        title="Squares",
        description="Squares.",
        quantities=(Quantity("square", "square", "s", "ms", 1e-3, 1),),
        sweeps={"paper": Sweep(points)},
        columns={"x": "x"},
        claims=[Claim("never", "Never.", "Section 0", "derived", None, judge)],
        derive=counter.derive,
        notes=lambda results: (f"{len(results.points)} points",),
    )


@pytest.fixture
def load_small(small, monkeypatch):
    """The command line finds the small artifact under the id 'fig_squares'."""
    monkeypatch.setattr("reproduce.experiment.catalog.load", lambda id, commands=(): small)
    return small


@pytest.fixture
def said(capsys):
    """What a command prints on standard output; it ends with this code."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([*map(str, words)]) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """The one line on standard error with which a command ends, with this code."""

    def run(*words, code=USAGE):
        capsys.readouterr()
        assert main([*map(str, words)]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("reproduce: ")
        assert "internal error" not in line
        return line

    return run


@pytest.fixture
def as_json(said):
    """What a command prints with --json, and nothing else; it ends with this code."""

    def run(*words, code=0):
        return json.loads(said(*words, "--json", code=code))

    return run


@pytest.fixture
def points_file(tmp_path):
    """Write points to a file for `simulate` and others; its path."""

    def write(*points):
        path = tmp_path / "points.json"
        path.write_text(json.dumps(points))
        return path

    return write


@pytest.fixture
def simulated_points(as_json, points_file):
    """What `simulate` answers to these points; it ends with this code."""
    return lambda points, *options, code=0: as_json("simulate", points_file(*points), *options, code=code)["points"]


def result_of(point, metrics, status, reason):
    """The result of a point, with the paper's values."""
    return PointResult(
        *(point.key, point.series, point.label, point.parameters, status, reason, "0" * 64, metrics), paper=point.paper
    )


@pytest.fixture
def results_for():
    """Results of an artifact's own points: each metric by a function of the point, 'oom' where `oom` says so."""

    def make(artifact, metrics, oom=lambda point: False):
        points = []
        for point in artifact.points("paper"):
            out = oom(point)
            values = {name: Metric(of(point), "1", "simulated") for name, of in metrics.items() if not out}
            points.append(result_of(point, values, *(("oom", "needs 99.0 GB") if out else ("ok", None))))
        return Results(tuple(points), "simulated")

    return make


@pytest.fixture(scope="session")
def figure_12(tmp_path_factory):
    """Figure 12, simulated once."""
    folder = tmp_path_factory.mktemp("figure_12")
    return runner.run(runner.plan(fig_interleaved.ARTIFACT, folder), ["reproduce", "fig_interleaved"], exported=True)


@pytest.fixture
def with_point(figure_12):
    """Figure 12's record with its first point changed."""

    def change(**changes):
        first, *rest = figure_12.record.points
        return replace(figure_12.record, points=(replace(first, **changes), *rest))

    return change


DESK = (1280, 800)


@pytest.fixture(scope="module")
def chromium():
    """Debian's browser, driven by Playwright; without either the test is skipped."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium; apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; pip install playwright")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, address):
    """Opens the page at the module's `address`, and fails if it asks another host for anything, or complains."""
    requested, complaints, pages = [], [], []

    def open_page(size=DESK, scheme="light", anchor="", script=True):
        viewport = dict(zip(("width", "height"), size, strict=True))
        page = chromium.new_page(viewport=viewport, color_scheme=scheme, java_script_enabled=script)
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address + anchor)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert all(url.startswith((address, "blob:")) for url in requested)
    assert complaints == []


@pytest.fixture
def assert_accessible():
    """Fails if axe finds a violation in a page."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe; pip install axe-playwright-python"
    )

    def check(page):
        result = axe.Axe().run(page)
        assert result.response["violations"] == [], result.generate_report()

    return check

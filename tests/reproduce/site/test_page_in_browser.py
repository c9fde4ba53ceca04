"""The page in Chromium: its numbers are `reproduce`'s, it redraws, links keep the view, mistakes lose nothing."""

import csv
import json
import shutil

import pytest

from reproduce.experiment import catalog
from reproduce.site import bridge, build
from reproduce.site.serve import served
from tests.reproduce.conftest import DESK

PHONE = (390, 844)
START_MS = 60_000  # on a busy machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm, which fetches Pyodide"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page on a file server, below a path."""
    folder = tmp_path_factory.mktemp("server")
    build.build(folder / "some" / "path", offline=True, snapshot=True)
    with served(folder) as server:
        yield f"{server}some/path/"


@pytest.fixture
def visit(visit):
    """Opens the page, and waits until it is ready."""

    def open_page(*view, **options):
        page = visit(*view, **options)
        ready(page)
        return page

    return open_page


def ready(page):
    page.wait_for_function("document.getElementById('message').textContent === 'Ready'", timeout=START_MS)


def numbers(text):
    """JSON with every number as a float: a browser writes large ones without a point."""
    return json.loads(text, parse_int=float)


def test_every_artifact_has_reproduces_numbers_to_the_last_digit(visit):
    page = visit()
    for id in catalog.ids():
        ours = numbers(bridge.call("artifact", json.dumps({"id": id})))["answer"]
        assert numbers(page.evaluate("id => ptdp.ask('artifact', { id }).then(JSON.stringify)", id)) == ours, id


def test_a_changed_number_redraws_and_its_link_shows_the_same(visit):
    page = visit()
    assert page.input_value("#cluster-select") == "selene"
    before = page.inner_text("#points")
    page.click("#cluster summary")
    box = page.get_by_label("hca_bandwidth in B/s", exact=True)
    box.fill("13e9")
    box.press("Enter")
    box.blur()
    page.wait_for_function("before => document.getElementById('points').innerText !== before", arg=before)
    after, chart = page.inner_text("#points"), page.inner_html("#chart")
    again = visit(anchor=page.evaluate("location.hash"))
    assert again.inner_text("#points") == after
    assert again.inner_html("#chart") == chart


def test_a_browser_that_cannot_use_the_snapshot_starts_python_from_the_beginning(chromium, address):
    page = chromium.new_page()
    page.route("**/snapshot.bin*", lambda route: route.fulfill(body=b"no snapshot"))
    page.goto(address)
    page.wait_for_selector("#chart svg", timeout=START_MS)
    assert [worker.url for worker in page.workers] == [f"{address}worker.js?plain"]
    page.close()


def test_wrong_input_is_one_message_and_loses_nothing(visit):
    page = visit()
    points = page.inner_text("#points")
    page.click("#cluster summary")
    box = page.get_by_label("hca_bandwidth in B/s", exact=True)
    box.fill("1e30")
    box.blur()
    assert "hca_bandwidth=1e+30 lies outside its range; needs " in page.inner_text("#error")
    page.fill("#cluster-text", "[[")
    page.click("#cluster-use")
    page.wait_for_function("document.getElementById('error').textContent.includes('not valid TOML')")
    assert page.inner_text("#points") == points
    page.click("#tab-whatif")
    ready(page)
    page.fill("#field-B", "61")
    page.fill("#field-d", "2")
    page.wait_for_function("document.getElementById('answer-status').textContent.includes('needs a multiple of d*b=2')")


def test_what_a_link_has_wrong_is_said_and_stays_until_something_changes(visit):
    page = visit(anchor="#cp=2&artifact=fig_pipeline_vs_data")
    assert page.inner_text("#error").startswith("left out of the address: cp is unknown, needs one of view, artifact")
    assert page.input_value("#artifact") == "fig_pipeline_vs_data"
    page.click("#tab-whatif")
    ready(page)
    assert page.locator("#error").is_hidden()


def test_exports(visit, tmp_path):
    page = visit(anchor="#artifact=fig_pipeline_vs_data")
    for kind in ("csv", "svg", "png"):
        with page.expect_download() as download:
            page.click(f"#view-figure [data-export={kind}]")
        download.value.save_as(tmp_path / kind)
    ours = json.loads(bridge.call("artifact", json.dumps({"id": "fig_pipeline_vs_data"})))["answer"]
    rows = list(csv.reader((tmp_path / "csv").read_text().splitlines()))
    assert len(rows) == 1 + len(ours["points"])
    assert (tmp_path / "svg").read_text().startswith("<svg")
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")


def test_what_if_plan_and_timeline(visit):
    page = visit(anchor="#view=whatif")
    assert "133.5" in page.inner_text("#answer")
    page.click("#best")
    page.wait_for_selector("#plans li", timeout=START_MS)
    page.click("#tab-timeline")
    page.wait_for_selector("#timelines canvas")
    page.select_option("#schedule-b", "gpipe")
    page.wait_for_function("document.querySelectorAll('#timelines canvas').length === 2")
    page.mouse.move(*(box := page.locator("#timelines canvas").first.bounding_box()) and (box["x"] + 60, box["y"] + 30))
    page.wait_for_function("document.getElementById('hover').textContent.startsWith('rank 0:')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("view", ["figure", "whatif", "timeline"])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(visit, assert_accessible, size, scheme, view):
    page = visit(size, scheme, f"#view={view}")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

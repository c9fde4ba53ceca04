"""The report's page of the reference results in Chromium, on a desk and on a phone: it answers, sorts and unfolds."""

import pytest

from reproduce.cli import main
from reproduce.experiment import catalog
from results import ROOT
from tests.reproduce.conftest import DESK

PHONE = (390, 844)
pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page, alone in its folder, as if it had been mailed."""
    page = tmp_path_factory.mktemp("mailed") / "report.html"
    assert main(["report", "--results", str(ROOT / "results" / "reference"), "--out", str(page)]) == 0
    return page.as_uri()


def shown_verdicts(page):
    rows = "[...document.querySelectorAll('#claims tbody tr')].filter(row => row.checkVisibility())"
    return set(page.evaluate(f"{rows}.map(row => row.dataset.verdict)"))


@pytest.mark.parametrize(("size", "screens"), [(DESK, 7), (PHONE, 14)])
def test_one_screen_answers_and_the_rest_is_folded(visit, size, screens):
    page = visit(size)
    answer = page.locator("header .lead")
    assert "sentences" in answer.inner_text()
    box, choice = answer.bounding_box(), page.locator("#claims fieldset").bounding_box()
    assert box["y"] + box["height"] < choice["y"] < size[1]  # the papers' table and the first choices below it
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.evaluate("document.documentElement.scrollHeight") < screens * size[1]
    assert page.locator("#claims tbody tr .tag").first.is_visible()


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_every_drawn_artifact_has_a_thumbnail_of_its_figure(visit, size):
    page = visit(size)
    drawn = [id for id in catalog.ids() if catalog.load(id).draw]
    thumbnails = page.locator("svg.thumbnail")
    assert thumbnails.count() == len(drawn)
    for thumbnail in thumbnails.all():
        shown, whole = thumbnail.bounding_box(), thumbnail.locator("use").evaluate("use => use.getBBox().width")
        assert 80 < shown["width"] < 160
        assert whole > 100  # the drawing, which is folded, is there
    page.locator("details.entry summary").first.click()
    assert not thumbnails.first.is_visible()  # the figure itself is


def test_what_is_contradicted_is_told_in_full(visit):
    rows = visit().locator("#claims tr[data-verdict=contradicted]").all_inner_texts()
    assert rows
    assert not any(cell.strip().rstrip("”").endswith("…") for row in rows for cell in row.split("\t"))


@pytest.mark.parametrize("script", [True, False])
def test_claims_by_verdict_need_no_script(visit, script):
    page = visit(script=script)
    assert shown_verdicts(page) == {"contradicted"}
    page.locator("#show-holds").check()
    assert shown_verdicts(page) == {"holds"}
    page.locator("#show-all").check()
    assert {"holds", "contradicted", "paper-inconsistent"} <= shown_verdicts(page)


def test_search_leaves_what_has_every_word(visit):
    page = visit()
    page.locator("#show-all").check()
    before = page.locator("details.entry").count()
    page.locator("#search").fill("interleaved Memory footprint")
    rows = page.locator("#claims tbody tr:not(.unmatched)").all_inner_texts()
    assert 0 < len(rows) < 10
    assert all("memory footprint" in row.lower() for row in rows)
    assert 0 < page.locator("details.entry:not(.unmatched)").count() < before
    assert f"{len(rows)} claims" in page.locator("#matches").inner_text()


@pytest.mark.parametrize("press", [lambda heading: heading.click(), lambda heading: heading.press("Enter")])
def test_tables_sort_by_number(visit, press):
    page = visit(anchor="#fig_interleaved")
    table = page.locator("#fig_interleaved table").first
    heading = table.locator("th", has_text="ours")
    column = heading.evaluate("heading => heading.cellIndex")
    press(heading)
    page.wait_for_selector("#fig_interleaved th[aria-sort=ascending]")
    page.wait_for_timeout(50)
    numbers = [float(row.locator("td").nth(column).inner_text()) for row in table.locator("tbody tr").all()]
    assert len(numbers) == 10
    assert numbers == sorted(numbers)


def test_a_link_unfolds_where_it_leads(visit):
    page = visit()
    section = page.locator("#fig_microbatch")
    assert not section.is_visible()
    page.locator("#claims a[href='#fig_microbatch']").first.click()
    section.wait_for()
    assert section.is_visible()


def test_a_figures_values_are_at_its_markers(visit):
    page = visit(anchor="#fig_interleaved")
    values = page.locator("#fig_interleaved svg").first.locator("use title")
    assert values.count() == 20
    assert "Interleaved (paper): 119 at Batch size (sequences) 12" in values.all_text_contents()


def test_a_points_verdict_is_in_sight_on_a_phone(visit):
    page = visit(PHONE, anchor="#fig_interleaved")
    cell = page.locator("#fig_interleaved td.verdict").first
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]


def test_figures_follow_dark_mode(visit):
    look = "element => [getComputedStyle(element).filter, getComputedStyle(document.body).backgroundColor]"
    light, dark = (
        visit(scheme=scheme, anchor="#fig_interleaved").locator("#fig_interleaved svg").first.evaluate(look)
        for scheme in ("light", "dark")
    )
    assert light[0] == "none"
    assert "invert(1)" in dark[0]
    assert light[1] != dark[1]


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_axe_finds_nothing_in_any_fold(visit, assert_accessible, size, scheme):
    page = visit(size, scheme)
    page.locator("#show-all").check()
    page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
    assert_accessible(page)

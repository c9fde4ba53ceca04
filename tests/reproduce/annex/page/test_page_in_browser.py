"""The page in Chromium: its numbers are `reproduce`'s, it redraws, links keep the view, mistakes lose nothing."""

import csv
import json
import shutil
from urllib.parse import quote, urlencode

import pytest

from reproduce.annex.page import bridge, build
from reproduce.annex.page.serve import served
from reproduce.experiment import catalog
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
    shows(page, "#message", "Ready")


def shows(page, selector, text):
    """Waits until an element has a text. (`wait_for_function` needs `eval`, which the page's policy forbids.)"""
    page.locator(selector, has_text=text).wait_for(timeout=START_MS)


def answered(page):
    """Waits until Python has answered what was asked, and what was asked because of that: it answers in turn."""
    page.evaluate("ptdp.ask('start', {}).then(() => ptdp.ask('start', {})).then(() => true)")


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
    box = page.get_by_label("HCA bandwidth in GB/s", exact=True)
    box.fill("13")
    box.press("Enter")
    box.blur()
    answered(page)
    after, chart = page.inner_text("#points"), page.inner_html("#chart")
    assert after != before
    again = visit(anchor=page.evaluate("location.hash"))
    assert again.inner_text("#points") == after
    assert again.inner_html("#chart") == chart


def test_a_browser_that_cannot_use_the_snapshot_starts_python_from_the_beginning(chromium, address):
    page, requested = chromium.new_page(), []
    page.route("**/snapshot.bin*", lambda route: route.fulfill(body=b"no snapshot"))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    page.wait_for_selector("#chart svg:not(.published)", timeout=START_MS)
    assert len(page.workers) == 1
    assert [url for url in requested if "worker.js" in url] == [f"{address}worker.js", f"{address}worker.js?plain"]
    page.close()


def test_wrong_input_is_one_message_and_loses_nothing(visit):
    page = visit()
    points = page.inner_text("#points")
    page.click("#cluster summary")
    box = page.get_by_label("HCA bandwidth in GB/s", exact=True)
    box.fill("1e30")
    box.blur()
    assert "HCA bandwidth: 1e30 lies outside its range; needs 12.6 to 24 GB/s" in page.inner_text("#error")
    page.fill("#cluster-text", "[[")
    page.click("#cluster-use")
    shows(page, "#error", "not valid TOML")
    assert page.inner_text("#points") == points
    page.click("#tab-whatif")
    ready(page)
    page.fill("#field-B", "61")
    page.fill("#field-d", "2")
    shows(page, "#answer-status", "needs a multiple of d*b=2")


def test_an_empty_field_leaves_no_answer_to_what_was_asked_before(visit):
    page = visit()
    page.click("#tab-whatif")
    ready(page)
    shows(page, "#answer-status", "it fits")
    page.fill("#field-B", "")
    assert "is empty; needs a number" in page.inner_text("#error")
    assert page.inner_text("#answer-status") == "Not simulated: the red line says what is wrong."
    assert page.inner_text("#answer") == ""
    page.fill("#field-B", "24")
    shows(page, "#answer-status", "it fits")


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
            page.click(f"#export-{kind}")
        download.value.save_as(tmp_path / kind)
    ours = json.loads(bridge.call("artifact", json.dumps({"id": "fig_pipeline_vs_data"})))["answer"]
    rows = list(csv.reader((tmp_path / "csv").read_text().splitlines()))
    assert len(rows) == 1 + len(ours["points"])
    assert (tmp_path / "svg").read_text().startswith("<svg")
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")


def test_what_if_says_what_limits_it_and_what_the_whole_run_costs(visit):
    page = visit(anchor="#view=whatif")
    shows(page, "#answer", "100.2")
    shows(page, "#run", "GPU hours")
    page.fill("#price", "2.5")
    page.press("#price", "Tab")
    shows(page, "#run", "cost (USD)")
    page.click("#limits")
    shows(page, "#limited", "NVLink x2")


def test_memory_that_does_not_suffice_is_red_and_reaches_beyond_the_mark(visit):
    page = visit(anchor="#view=whatif")
    place = "document.querySelector('#memory .capacity').getBoundingClientRect().right"
    used = "[...document.querySelectorAll('#memory .stack [data-part]')].at(-1).getBoundingClientRect().right"
    assert page.evaluate(f"{used} < {place}")
    page.select_option("#field-recompute", "none")
    shows(page, "#answer-status", "Out of memory")
    assert page.evaluate(f"{used} > {place}")
    assert page.locator("#memory .stack.over").count() == 1


def test_a_change_is_said_and_a_kept_configuration_stands_beside_the_present_one(visit):
    page = visit(anchor="#view=whatif")
    page.click("#keep")
    page.fill("#field-B", "30")
    shows(page, "#changed", "Batch size 60 → 30: iteration 13.75 → 7.95 s")
    shows(page, "#comparison", "−42.2%")
    page.click("#comparison button >> nth=0")
    shows(page, "#comparison", "Both are the same so far")
    assert page.input_value("#field-B") == "60"


def test_the_best_layout_is_taken_whole_and_goes_stale(visit):
    page = visit(anchor='#view=whatif&configuration={"layers":96,"hidden":12288,"heads":96,"p":12,"t":8,"B":96}')
    page.click("#best")
    button = page.locator("#plans button").first
    button.wait_for(timeout=START_MS)
    time = page.inner_text("#plans li >> nth=0").split(" s,")[0]
    button.click()
    shows(page, "#answer", time)
    shows(page, "#answer-status", "it fits")
    assert page.locator("#plans .stale").is_hidden()
    page.fill("#field-B", "192")
    shows(page, "#plans .stale", "ask again")
    assert page.locator("#plans .stale").is_visible()


def test_a_scenario_fills_the_form_and_a_slider_sets_a_field(visit):
    page = visit(anchor="#view=whatif")
    page.click("#scenarios button >> nth=1")
    shows(page, "#sizes", "70.6 billion parameters on 512 GPUs")
    assert page.input_value("#model") == "llama-3-70b"
    assert page.is_checked("#field-sequence_parallel")
    page.select_option("#sweep-field", "v")
    page.locator("#sweep-chart svg").wait_for(timeout=START_MS)
    page.press("#sweep-value", "Home")
    shows(page, "#changed", "Model chunks on a GPU 5 → ")
    answered(page)
    assert page.input_value("#field-v") == "2"


def test_help_opens_by_a_tap_and_every_target_is_large_enough(visit):
    page = visit(PHONE, anchor="#view=whatif")
    page.click(".help >> nth=0")
    assert page.locator(".field p").first.is_visible()
    for selector in (".help", "#scenarios button", "[role=tab]"):
        sizes = page.evaluate(f"[...document.querySelectorAll('{selector}')].map((it) => it.getBoundingClientRect())")
        assert all(min(size["width"], size["height"]) >= 44 for size in sizes if size["width"]), selector


def test_a_timeline_says_what_a_pass_is_and_who_waits_for_whom(visit):
    page = visit(anchor="#view=timeline")
    canvas = page.locator("#timelines canvas")
    canvas.first.wait_for()
    page.select_option("#schedule-b", "gpipe")
    canvas.nth(1).wait_for()
    box = canvas.first.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 30)
    shows(page, "#hover", "Rank 0: forward of stage 0")
    page.mouse.click(box["x"] + 120, box["y"] + 30)
    shows(page, "#hover", "for the backward pass of microbatch 0 on rank 1")
    page.click("#timelines [aria-label='more closely'] >> nth=0")
    assert page.locator("#timelines .targets").count() == 2


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_lessons_can_be_walked_through(visit, size):
    page = visit(size, anchor="#view=lessons&tokens=1T")
    for i, entry in enumerate(bridge.start()["lessons"]):
        page.click(f"#lessons a >> nth={i}")
        shows(page, "#lesson-title", entry["title"])
        picture = "#lesson-picture canvas, #lesson-picture svg"
        page.locator(picture).first.wait_for(timeout=START_MS)
        first = page.inner_text("#lesson-said")
        page.press("#lesson-value", "End")
        answered(page)
        assert page.inner_text("#lesson-said") != first
        page.click("#view-lessons summary")
        assert page.locator("#lesson-answer").is_visible()
    page.click("#lesson-open")
    shows(page, "#answer-status", "it fits")
    assert page.input_value("#field-schedule") == "zb-v"
    assert page.input_value("#tokens") == "1T"  # following a lesson's link leaves all else as it is


def test_the_published_points_are_there_without_any_script(chromium, address):
    page = chromium.new_page(java_script_enabled=False)
    page.goto(address)
    assert page.locator("#chart .published.w760 circle").count() == 10
    page.close()


def test_without_an_answer_from_the_cdn_the_page_says_in_five_seconds_what_is_missing(chromium, tmp_path):
    build.build(tmp_path)
    page = chromium.new_page()
    held = []
    page.route("https://cdn.jsdelivr.net/**", lambda route: held.append(route))  # neither an answer nor an error
    with served(tmp_path) as online:
        page.goto(online, wait_until="commit")
        page.locator("#message", has_text="Still waiting for cdn.jsdelivr.net").wait_for(timeout=10_000)
        assert "reproduce explore" in page.inner_text("#message")
        page.close()
        assert held


def test_a_blocked_cdn_is_named(chromium, tmp_path):
    build.build(tmp_path)
    page = chromium.new_page()
    page.route("https://cdn.jsdelivr.net/**", lambda route: route.abort())
    with served(tmp_path) as online:
        page.goto(online)
        shows(page, "#error", "no answer from cdn.jsdelivr.net")
        assert page.locator("#chart .published.w760 circle").count() == 10
        page.close()


def test_opened_as_a_file_the_page_says_how_to_see_it(chromium, tmp_path):
    build.build(tmp_path)
    page = chromium.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    shows(page, "#message", "reproduce explore")
    assert page.locator("#chart .published.w760 circle").count() == 10
    page.close()


HOSTILE = """"'><script>injected = 1</script><img src=x onerror="injected = 1"><svg onload="injected = 1">"""
FIELDS = list(bridge.start()["fields"])
COUNT = "document.querySelectorAll('script, img, iframe, object, embed, base, form, svg[onload]').length"


def hostile_links():
    """A hostile text in every parameter, and in every field and name of those that are JSON, for every view."""
    words = [
        {key: HOSTILE}
        for key in (
            *("view", "artifact", "cluster", "text", "beside", "tokens", "price", "changes", "configuration"),
            *("sweep", "lesson", "step", "against"),
        )
    ]
    words += [{"changes": json.dumps(changes)} for changes in ({HOSTILE: 1}, {"hca_bandwidth": HOSTILE})]
    words += [{"configuration": json.dumps({name: HOSTILE})} for name in (*FIELDS, HOSTILE)]
    words += [
        {"configuration": json.dumps(value)} for value in ([HOSTILE], HOSTILE, {"__proto__": {"p": HOSTILE}}, None)
    ]
    words += [{"against": json.dumps(value)} for value in ({"configuration": {HOSTILE: HOSTILE}}, {"cluster": HOSTILE})]
    views = ("figure", "whatif", "timeline", "lessons", f"javascript:{HOSTILE}")
    return [{"view": view, **word} for view in views for word in words]


def test_a_hostile_link_becomes_text_and_nothing_else(visit):
    """No script of it runs, no element is made of it, and the page itself breaks none of its policy's rules."""
    page = visit()
    before = page.evaluate(COUNT)
    for link in hostile_links():
        page.evaluate("hash => { location.hash = hash; }", urlencode(link, quote_via=quote))
        answered(page)
        assert page.evaluate(f"[{COUNT}, typeof globalThis.injected]") == [before, "undefined"], link
        assert "internal error" not in page.inner_text("#error"), link
    assert page.get_attribute("#tab-figure", "aria-selected") == "true"  # what stands in for an unknown view


@pytest.mark.parametrize("place", ["?{}", "#{}", "?{0}#{0}"])
def test_opening_a_hostile_link_is_no_worse(chromium, address, place):
    everything = urlencode(
        {**dict.fromkeys(("view", "artifact", "cluster", "text", "beside"), HOSTILE)}, quote_via=quote
    )
    page, complaints = chromium.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(address + place.format(everything))
    ready(page)
    answered(page)
    assert page.evaluate("typeof globalThis.injected") == "undefined"
    assert page.locator("img, iframe, script:not(head script)").count() == 0
    assert complaints == []
    page.close()


# What could be tried from inside the page, and the directive of its policy that stops it.
ATTACKS = {
    "script-src-attr": "document.body.innerHTML += `<img src=x onerror='injected = 1'>`",
    "script-src-elem": "document.body.append(Object.assign(document.createElement('script'), {text: 'injected = 1'}))",
    "script-src": "setTimeout(() => eval('injected = 1'))",
    "connect-src": "fetch(other, {mode: 'no-cors'}).then(() => { injected = 1; }, () => {})",
    "base-uri": "document.head.append(Object.assign(document.createElement('base'), {href: other}))",
    "frame-src": "document.body.append(Object.assign(document.createElement('iframe'), {src: other}))",
}


@pytest.fixture
def attacked(chromium, address, tmp_path):
    """A page, and the address of a server that is not its own."""
    page = chromium.new_page()
    page.goto(address)
    with served(tmp_path) as other:
        yield page, other
    page.close()


@pytest.mark.parametrize("directive", ATTACKS)
def test_the_policy_stops_what_would_get_into_the_page(attacked, directive):
    page, other = attacked
    stopped = "addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective))"
    assert directive == page.evaluate(
        f"(other) => new Promise((resolve) => {{ {stopped}; {ATTACKS[directive]}; }})", other
    )
    assert page.evaluate("typeof globalThis.injected") == "undefined"


def test_the_worker_has_the_page_s_policy(attacked):
    """Python in it can send nothing to another host."""
    page, other = attacked
    code = f"fetch({other!r}, {{mode: 'no-cors'}}).then(() => postMessage('sent'), () => postMessage('refused'))"
    made = "new Worker(URL.createObjectURL(new Blob([code])))"
    answer = page.evaluate(
        f"(code) => new Promise((resolve) => {{ {made}.onmessage = (event) => resolve(event.data); }})", code
    )
    assert answer == "refused"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("view", ["figure", "whatif", "timeline", "lessons"])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(visit, assert_accessible, size, scheme, view):
    page = visit(size, scheme, f"#view={view}")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

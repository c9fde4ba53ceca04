"""The page in Chromium: its numbers are `reproduce`'s, it redraws, links keep the view, mistakes lose nothing."""

import csv
import json
import shutil
from urllib.parse import quote, urlencode

import pytest

from reproduce.annex.page import bridge, build
from reproduce.annex.page.serve import served
from reproduce.experiment import catalog

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
    shows(page, "#message", "Simulator ready")


def shows(page, selector, text):
    """Waits until an element has a text. (`wait_for_function` needs `eval`, which the page's policy forbids.)"""
    page.locator(selector, has_text=text).wait_for(timeout=START_MS)


def answered(page):
    """Waits until Python has answered what was asked, and what was asked because of that, also a frame later."""
    page.evaluate("ptdp.ask('start', {}).then(() => new Promise(requestAnimationFrame))")
    page.evaluate("ptdp.ask('start', {}).then(() => ptdp.ask('start', {})).then(() => true)")


def numbers(text):
    """JSON with every number as a float: a browser writes large ones without a point."""
    return json.loads(text, parse_int=float)


def test_every_artifact_has_reproduces_numbers_to_the_last_digit(visit):
    page = visit()
    for id in catalog.ids():
        for asked in ("artifact", "claims"):
            ours = numbers(bridge.call(asked, json.dumps({"id": id})))["answer"]
            theirs = page.evaluate("([name, id]) => ptdp.ask(name, { id }).then(JSON.stringify)", [asked, id])
            assert numbers(theirs) == ours, (asked, id)


def test_a_browser_that_cannot_use_the_snapshot_starts_python_from_the_beginning(chromium, address):
    page, requested = chromium.new_page(), []
    page.route("**/snapshot.bin*", lambda route: route.fulfill(body=b"no snapshot"))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    page.wait_for_selector("#home-chart svg:not(.published)", timeout=START_MS)
    assert len(page.workers) == 1
    assert [url for url in requested if "worker.js" in url] == [f"{address}worker.js", f"{address}worker.js?plain"]
    page.close()


def test_exports(visit, tmp_path):
    page = visit(anchor="#artifact=fig_pipeline_vs_data")
    for kind in ("csv", "svg", "png"):
        with page.expect_download() as download:
            page.click(f"figcaption button:text-is('{kind.upper()}')")
        download.value.save_as(tmp_path / kind)
    ours = json.loads(bridge.call("artifact", json.dumps({"id": "fig_pipeline_vs_data"})))["answer"]
    rows = list(csv.reader((tmp_path / "csv").read_text().splitlines()))
    assert len(rows) == 1 + len(ours["points"])
    assert (tmp_path / "svg").read_text().startswith("<svg")
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")


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
        assert page.locator("#home-chart .published >> nth=0").locator("circle").count() == 10
        page.close()


def test_opened_as_a_file_the_page_says_how_to_see_it(chromium, tmp_path):
    build.build(tmp_path)
    page = chromium.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    shows(page, "#message", "reproduce explore")
    assert page.locator("#home-chart .published >> nth=0").locator("circle").count() == 10
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
    views = ("home", "figure", "whatif", "timeline", "lessons", f"javascript:{HOSTILE}")
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
    assert (
        page.get_attribute(".tabs [data-view=figure]", "aria-current") == "page"
    )  # what stands in for an unknown view


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

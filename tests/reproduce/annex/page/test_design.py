"""The page as it was designed, in Chromium: twenty checks, at 390, 768 and 1280 pixels, light and dark."""

import json
import re
import shutil
from itertools import pairwise
from urllib.parse import quote

import pytest

from reproduce.annex.page import bridge, build, home
from reproduce.annex.page.serve import served

VIEWS = ("", "#view=figure", "#view=whatif", "#view=timeline", "#view=lessons", "#view=paper&paper=llama3")
WIDTHS = (390, 768, 1280)
START_MS = 60_000
GPT_3 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "d": 1, "v": 1, "b": 1, "B": 288}
LLAMA = bridge.start()["scenarios"][1]

CELLS = "#view-home .waffle a"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm, which fetches Pyodide"),
]

WHOLE = "(field) => field.scrollWidth <= field.clientWidth"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page on a file server."""
    folder = tmp_path_factory.mktemp("page")
    build.build(folder, offline=True, snapshot=True)
    with served(folder) as server:
        yield server


@pytest.fixture
def visit(visit):
    """Opens the page at a width, and waits until it has answered."""

    def open_page(width=1280, anchor="", scheme="light", height=900, script=True):
        page = visit((width, height), scheme, anchor, script)
        if script:
            page.locator("#message", has_text="Simulator ready").wait_for(timeout=START_MS)
            settled(page)
        return page

    return open_page


def settled(page):
    """Waits until Python has answered all that was asked, also what was asked because of that, and it is drawn."""
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(ptdp.isBusy()))))"
    page.evaluate(frames)
    while page.evaluate(frames):
        pass


def shows(page, selector, text):
    page.locator(selector, has_text=text).first.wait_for(timeout=START_MS)


def whatif(configuration=LLAMA["configuration"], cluster="h100", tokens="15T"):
    return f"#view=whatif&cluster={cluster}&tokens={tokens}&configuration={quote(json.dumps(configuration))}"


def timeline(configuration):
    return f"#view=timeline&configuration={quote(json.dumps(configuration))}"


@pytest.mark.parametrize("width", WIDTHS)
def test_01_nothing_is_wider_than_the_screen(visit, width):
    for view in VIEWS:
        page = visit(width, view)
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert size[0] == size[1], view


def test_02_home_is_complete_without_a_script(visit):
    page = visit(script=False)
    counts = next(iter(home.judged().papers.values())).counts
    assert page.locator(CELLS).count() == sum(counts.values())
    assert page.inner_text(".says").startswith(f"Of its {sum(counts.values())} claims {counts['holds']} hold")
    assert [int(number) for number in page.locator(".tally b").all_inner_texts()] == [
        counts[verdict] for verdict in home.KINDS
    ]
    assert page.locator("#home-chart .published").first.locator("circle").count() == 10
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("#home-chart .published:visible").count() == 1, width
    assert "3.3%" in page.inner_text("#trust")


def test_03_what_matters_of_home_is_seen_without_scrolling(visit):
    page = visit(1280, height=900)
    for selector in ("#view-home h1", "#view-home .waffle", ".tally button >> nth=0", "#home-chart svg"):
        box = page.locator(selector).first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900, selector


def test_04_each_claim_is_a_link_and_the_matrix_is_one_tab_stop(visit):
    page = visit()
    names = page.eval_on_selector_all(CELLS, "(cells) => cells.map((cell) => cell.getAttribute('aria-label'))")
    words = {"holds", "contradicted", "too near to call", "the paper's own numbers disagree", "not testable here"}
    assert all(name.rpartition(": ")[2] in words for name in names)
    assert page.eval_on_selector_all(CELLS, "(cells) => cells.filter((cell) => cell.tabIndex === 0).length") == 1
    page.focus(f"{CELLS}[tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == names[1]
    target = page.evaluate("document.activeElement.getAttribute('href')")
    page.keyboard.press("Enter")
    page.locator("[data-chosen]").wait_for(timeout=START_MS)
    settled(page)
    assert re.search(r"claim=(\w+)", target)[1] in page.evaluate("location.hash")


def test_05_signs_and_hatches_stand_for_colours(visit):
    page = visit()
    sign = "(kind) => getComputedStyle(document.querySelector(`.waffle .v-${kind}`), '::before').content"
    assert page.evaluate(sign, "contra") == '"✕"'
    assert page.evaluate(sign, "self") == '"≠"'
    lesson = visit(anchor="#view=lessons")
    assert lesson.locator("#lesson-picture rect.wait").count() == 4
    assert "held" not in lesson.text_content("#lesson-picture")  # memory stands where a playhead can read it
    assert "hatch" in lesson.evaluate("getComputedStyle(document.querySelector('rect.wait')).fill")


def test_06_series_are_named_at_their_lines(visit):
    page = visit(anchor="#view=figure")
    assert page.locator("#view-figure [class*=legend], #view-figure [class*=swatches]").count() == 0
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        for kind in (1, 2):
            near = page.evaluate(
                """(kind) => {
                  const name = document.querySelector(`#chart text.f${kind}`).getBoundingClientRect();
                  const dots = [...document.querySelectorAll(`#chart circle.f${kind}`)];
                  const gap = (at, low, high) => Math.max(low - at, at - high, 0);
                  return Math.min(...dots.map((dot) => {
                    const { x, y, width } = dot.getBoundingClientRect();
                    const [u, v] = [x + width / 2, y + width / 2];
                    return Math.hypot(gap(u, name.left, name.right), gap(v, name.top, name.bottom));
                  }));
                }""",
                kind,
            )
            assert near <= 24, (width, kind)


def test_a_band_s_ends_have_one_decimal_as_the_margins_have(visit):
    shows(visit(anchor="#view=figure"), "#view-figure li", "6.7% below to 7.2% above")


@pytest.mark.parametrize("width", [320, *WIDTHS])
def test_07_letters_of_charts_have_one_size_and_none_is_cut(visit, width):
    page = visit(width, "#view=figure")
    sizes = page.eval_on_selector_all("#chart svg text", "(all) => all.map((it) => getComputedStyle(it).fontSize)")
    assert set(sizes) == {"13px"}
    outside = page.evaluate(
        """() => {
          const box = document.querySelector("#chart svg").getBoundingClientRect();
          const texts = [...document.querySelectorAll("#chart svg text")];
          return texts.filter((it) => {
            const { left, right } = it.getBoundingClientRect();
            return left < box.left - 1 || right > box.right + 1;
          }).map((it) => it.textContent);
        }"""
    )
    assert outside == []
    passes = visit(width, timeline({**GPT_3, "p": 4, "t": 2, "B": 8}))
    shown = "(all) => all.map((it) => getComputedStyle(it).fontSize)"
    assert set(passes.eval_on_selector_all("#timelines text.sm", shown)) <= {"11px"}


def test_08_no_name_of_a_file_is_shown(visit):
    for view in (*VIEWS, whatif()):
        words = visit(anchor=view).inner_text("body")
        for name in ("selene", "1f1b", "sdpa", "all_gather", "p2p"):
            assert name not in words, (view, name)


def test_09_four_choices_and_each_changes_the_answer(visit):
    page = visit(anchor=whatif())
    inputs = page.locator("#ask select:visible, #ask input:visible")
    assert inputs.count() == 4
    before = page.inner_text("#answer .big")
    page.fill("#gpus", "1024")
    page.locator("#answer .big").filter(has_not_text=before).wait_for(timeout=START_MS)
    before = page.inner_text("#answer .big")
    page.select_option("#machine-whatif", "h200")
    page.locator("#answer .big").filter(has_not_text=before).wait_for(timeout=START_MS)


def test_a_number_comes_before_what_follows_from_it_which_is_asked_once_nothing_newer_comes(visit):
    page = visit(anchor=whatif())
    page.evaluate(
        """() => {
          globalThis.asked = [];
          const post = Worker.prototype.postMessage;
          Worker.prototype.postMessage = function (message) { asked.push(message.name); post.call(this, message); };
          const type = (batch) => {
            document.querySelector("#batch").value = batch;
            document.querySelector("#batch").dispatchEvent(new Event("input", { bubbles: true }));
          };
          const seen = new Promise((done) => new MutationObserver(done).observe(document.querySelector("#number"),
            { childList: true }));
          type(512);
          return seen.then(() => type(2048));
        }"""
    )
    settled(page)
    assert page.evaluate("asked") == ["what_if", "what_if", "knobs", "limits"]
    assert '"B":2048' in page.evaluate("decodeURIComponent(location.hash)")


def test_a_button_that_was_pressed_keeps_the_focus(visit):
    page = visit(anchor=whatif())
    for button in ("[data-size=p] button >> nth=1", "#chips button >> nth=0"):
        page.locator(button).press("Enter")
        settled(page)
        assert page.evaluate("document.activeElement.tagName") == "BUTTON", button


def test_10_the_number_has_its_interval_or_none(visit):
    page = visit(anchor=whatif())
    label = page.get_attribute("#answer .answer svg", "aria-label")
    assert re.fullmatch(r"9 of 10 in [\d.,]+ to [\d.,]+ days", label)
    shows(page, "#changed", "9 of 10 in")
    unknown = visit(anchor=whatif(cluster="mi300x", tokens=""))
    assert unknown.locator("#answer .answer svg").count() == 0
    assert "9 of 10" not in unknown.inner_text("#answer .answer")


def test_another_program_changes_the_answer_and_its_interval_says_whose_it_is(visit):
    page = visit(anchor=whatif())
    before = page.inner_text("#answer .answer")
    page.select_option("#program", "torchtitan")
    shows(page, "#answer .note", "torchtitan")
    assert page.inner_text("#answer .answer") != before
    assert page.locator("#answer .answer svg").count() == 1
    settled(page)
    assert "torchtitan" in page.evaluate("decodeURIComponent(location.hash)")
    page.select_option("[aria-label='Context parallel']", "Context over 2 GPUs")
    shows(page, "#steps", "2 × 8 × 2")


def test_11_what_does_not_fit_says_by_how_much_and_what_would(visit):
    page = visit(anchor=whatif({**LLAMA["configuration"], "sharded_optimizer": False}))
    assert re.match(r"\+[\d.]+ GB too much", page.inner_text("#answer .big"))
    assert page.locator("#answer .bad-line").count() == 1
    page.click("#helps button >> nth=0")
    shows(page, "#answer .big", "days")


def test_12_a_number_of_gpus_that_is_not_legal_is_told_at_its_field(visit):
    page = visit(anchor=whatif())
    before = page.inner_text("#answer .big")
    page.fill("#gpus", "500")
    shows(page, "#gpus-field .why", "500 is no multiple of 2 × 8. Nearest: 512.")
    assert page.inner_text("#answer .big") == before
    assert "stale" in page.get_attribute("#answer", "class")
    page.fill("#gpus", "512")
    page.locator("#gpus-field:not(.bad)").wait_for()
    page.fill("#gpus", "96")  # six replicas do not share the batch, but other layouts have as many GPUs
    page.locator("#gpus-field.bad").wait_for()
    page.click("#best")
    shows(page, "#layout", "96 GPUs")


def test_an_answer_of_something_else_is_dimmed_and_says_of_what(visit):
    page = visit(390, whatif())
    shown = page.inner_text("#dock")
    page.fill("#gpus", "500")
    page.locator("#gpus-field.bad").wait_for()
    of = "Llama 3, 70 billion parameters, 512 GPUs, batch 1,024, 15T tokens"
    assert page.inner_text("#answer .over") == f"Last answer: {of}"
    assert "Last answer: 512 GPUs, batch 1,024" in page.inner_text("#dock")
    faint = "(it) => getComputedStyle(it).opacity"
    assert [page.eval_on_selector(it, faint) for it in ("#dock b", "#answer .facts", "#answer .big")] == ["0.5"] * 3
    assert [page.eval_on_selector(it, faint) for it in ("#dock span", "#answer .over", "#answer")] == ["1"] * 3
    page.fill("#gpus", "512")
    page.locator("#answer:not(.stale)").wait_for()
    assert page.inner_text("#dock") == shown
    assert page.inner_text("#answer .over").startswith("Training on")


def test_tokens_that_are_no_amount_are_told_at_their_field_and_change_nothing(visit):
    page = visit(390, whatif())
    page.click("text=Change tokens and price")
    page.fill("#tokens", "1 trillion")
    page.locator("#tokens").blur()
    shows(page, "#tokens-field .why", "'1 trillion' is no amount; needs a number above 0")
    assert page.locator("#error").is_hidden()
    assert "tokens=15T" in page.evaluate("location.hash")
    assert "stale" in page.get_attribute("#answer", "class")
    page.fill("#tokens", "1T")
    page.locator("#tokens").blur()
    shows(page, "#answer .over", "Training on 1 trillion tokens takes")


@pytest.mark.parametrize(
    ("anchor", "field", "sentence", "of"),
    [
        (
            whatif(tokens="much"),
            "#tokens-field .why",
            "'much' is no amount",
            "Llama 3, 70 billion parameters, 512 GPUs",
        ),
        (
            whatif(GPT_3 | {"B": 0}, "selene"),
            "#batch-field .why",
            "Batch size 0 is not",
            "GPT-3, 175 billion parameters, 96",
        ),
        (whatif(GPT_3 | {"heads": 7}, "selene"), "#invalid", "attention heads 7", "GPT-3, 175 billion parameters, 96"),
        (whatif(cluster="nix"), "#error", "'nix' is unknown", "GPT-3, 175 billion parameters, 96 GPUs, batch 60"),
    ],
)
def test_what_a_link_has_wrong_is_told_at_its_field_beside_a_dimmed_answer_of_what_is_legal(
    visit, anchor, field, sentence, of
):
    page = visit(anchor=anchor)
    shows(page, field, sentence)
    assert page.inner_text("#answer .over").startswith(f"Without it: {of}")
    assert "stale" in page.get_attribute("#answer", "class")
    page.click("#scenarios button >> nth=0")
    page.locator("#answer:not(.stale)").wait_for(timeout=START_MS)
    assert page.locator("#error, #invalid").locator("visible=true").count() == 0


def test_another_model_takes_a_layout_of_its_own_and_says_so(visit):
    page = visit(anchor="#view=whatif")
    assert page.input_value("#batch") == "60"
    page.select_option("#model", "llama-3-70b")
    shows(page, "#taken", "a layout by the paper’s takeaways, a batch of 3.1 million tokens")
    settled(page)
    assert (page.input_value("#gpus"), page.input_value("#batch")) == ("96", "384")
    assert page.inner_text("[data-size=p] output") == "4"
    page.click("[data-size=p] button >> nth=0")
    shows(page, "[data-size=p] output", "3")
    settled(page)
    assert page.inner_text("#taken") == ""


def test_a_model_of_one_s_own_opens_its_fields(visit):
    page = visit(anchor=whatif())
    page.select_option("#model", "")
    box = page.locator("#field-layers").bounding_box()
    assert 0 <= box["y"] <= 900 - box["height"]


def test_that_nothing_fits_is_said_below_the_choices_in_place_of_what_was_done(visit):
    page = visit(390, whatif())
    page.fill("#gpus", "8")
    shows(page, "#gpus-field .why", "Or find the best layout.")
    page.click("#best")
    shows(page, "#invalid", "Nothing fits: on 8 GPUs no layout needs less than")
    assert "=" not in page.inner_text("#invalid")
    assert page.inner_text("#gpus-field .why") == ""
    assert page.locator("#error").is_hidden()
    page.fill("#gpus", "24")
    shows(page, "#gpus-field .why", "24 is no multiple of 2 × 8")
    assert page.locator("#invalid").is_hidden()


def test_13_best_layouts_stand_together_where_they_cannot_be_told_apart(visit):
    model = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "seq": 8192}
    page = visit(anchor=whatif(model | {"p": 1, "t": 4, "d": 4, "B": 16, "attention": "sdpa"}))
    page.click("#best")
    page.locator("#plans table").wait_for(timeout=START_MS)
    assert page.locator("#plans tr.band").first.inner_text().startswith("Too near to call")
    assert page.locator("#plans tr.mine").count() == 1
    assert all(page.locator("#plans tbody tr:not(.band) small").all_inner_texts())
    page.click("#plans .act button >> nth=0")
    page.locator("#plans.stale").wait_for(timeout=START_MS)


def test_14_the_layout_has_a_square_for_each_gpu_and_a_box_for_each_replica(visit):
    page = visit(anchor=whatif())
    count = lambda selector: page.locator(f"#layout {selector}").count()  # noqa: E731
    assert (count(".gpu"), count(".replica")) == (2 * 8, 32)
    page.click("[data-size=p] button >> nth=1")
    shows(page, "[data-size=p] output", "4")
    settled(page)
    assert (count(".gpu"), count(".replica")) == (4 * 8, 16)


@pytest.mark.parametrize(("width", "least"), [(1280, 6), (390, 3)])
def test_15_a_long_iteration_is_folded_and_a_short_one_is_not(visit, width, least):
    page = visit(width, timeline(GPT_3))
    widths = page.eval_on_selector_all(
        "#timelines rect.fwd:not(.cut), #timelines rect.bwd:not(.cut)",
        "(all) => all.map((it) => it.getBoundingClientRect().width)",
    )
    assert min(widths) >= least
    assert "alike" in page.text_content("#timelines")
    assert re.search(r"[\d.]+ s", page.text_content("#timelines"))
    short = visit(width, timeline({**GPT_3, "p": 4, "t": 2, "B": 8}))
    assert "alike" not in short.text_content("#timelines")
    whole = visit(390, timeline({**GPT_3, "B": 24})).text_content("#timelines .fold")  # two halves, nothing left out
    assert whole == "goes on"


def test_16_the_playhead_goes_by_keys_and_says_who_works(visit):
    page = visit(anchor=timeline(GPT_3))
    before = page.inner_text("#moment b")
    page.focus("#time")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageUp")
    settled(page)
    assert page.inner_text("#moment b") != before
    assert re.match(r"At [\d.]+ s (all )?stages? .*work", page.inner_text("#moment b"))
    assert "waits" in page.inner_text("#moment span")
    said = page.inner_text("#moment b")
    page.click("#play")
    page.wait_for_timeout(300)
    assert page.inner_text("#moment b") == said  # nothing is announced while playing
    page.click("#play")


def test_17_the_rest_of_a_curve_is_there_after_a_guess_and_a_wrong_one_says_why(visit):
    page = visit(anchor="#view=lessons")
    chart = page.locator(".quiz svg").first
    assert "9.38" not in page.inner_text(".quiz")
    assert "9.38" not in chart.get_attribute("aria-label")
    assert chart.locator("circle[class^=f1]").count() == 2
    page.click(".quiz label >> nth=0")
    assert "with 4 microbatches it is" in page.inner_text(".quiz")
    chart = page.locator(".quiz svg").first
    assert chart.locator("circle[class^=f1]").count() == 4
    assert "9.38" in chart.get_attribute("aria-label")


def test_18_what_a_finger_may_touch_is_large_enough(visit):
    for view in VIEWS:
        page = visit(390, view)
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, select, input:not([type=radio]):not([type=file]), summary,"
              + " .tabs a, .quiet, .btn, .opts label")]
              .filter((it) => it.getClientRects().length && !it.closest(".off") && !it.classList.contains("off"))
              .map((it) => [it.outerHTML.slice(0, 90), it.getBoundingClientRect().height])
              .filter(([, height]) => height < 43.5)"""
        )
        assert small == [], view


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_19_axe_finds_nothing_and_no_style_stands_in_an_element(visit, assert_accessible, width, scheme):
    for view in VIEWS:
        page = visit(width, view, scheme)
        assert_accessible(page)
        assert page.locator("[style]").count() == 0, view
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        ring = "(it) => [it.outlineWidth, it.outlineStyle]"
        assert page.evaluate(f"({ring})(getComputedStyle(document.activeElement))") == ["3px", "solid"]


def test_20_nothing_moves_for_who_wants_no_motion_and_larger_text_fits(chromium, address):
    page = chromium.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.goto(address)
    page.locator("#message", has_text="Simulator ready").wait_for(timeout=START_MS)
    for view in ("figure", "whatif", "timeline", "lessons"):
        page.click(f".tabs [data-view={view}]")
        settled(page)
        assert page.evaluate("document.getAnimations().length") == 0
        page.evaluate("document.documentElement.style.fontSize = '32px'")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), view
        page.evaluate("document.documentElement.removeAttribute('style')")
    page.close()


def test_a_figure_of_another_paper_is_on_its_machine_and_has_its_values(visit):
    page = visit(anchor="#view=figure&artifact=megascale/figure_9")
    assert page.input_value("#machine-figure") == ""
    rings = page.locator("#chart circle.pub").count()
    assert rings > 1
    assert page.locator("#chart.faded").count() == 0
    page.click("#cluster summary")
    page.locator("#cluster-numbers tr >> nth=1").wait_for(timeout=START_MS)
    assert "A100" in page.inner_text("#cluster-description")
    page.click(".tabs [data-view=whatif]")
    assert page.input_value("#machine-whatif") == "selene"
    page.click(".tabs [data-view=figure]")
    page.select_option("#machine-figure", "h100")
    settled(page)
    assert page.locator("#chart.faded circle.pub").count() == rings
    assert "own machine" in page.inner_text("#reading")


def test_a_changed_number_of_the_machine_redraws_and_its_link_shows_the_same(visit):
    page = visit(anchor="#view=figure")
    before = page.inner_html("#chart")
    page.click("#cluster summary")
    box = page.get_by_label("HCA bandwidth in GB/s", exact=True)
    box.fill("13")
    box.press("Enter")
    settled(page)
    after = page.inner_html("#chart")
    assert after != before
    again = visit(anchor=page.evaluate("location.hash"))
    assert again.inner_html("#chart") == after
    again.click("#cluster summary")
    box = again.get_by_label("HCA bandwidth in GB/s", exact=True)
    box.fill("1e30")
    box.blur()
    shows(again, "#error", "HCA bandwidth: 1e30 lies outside its range; needs 12.6 to 24 GB/s")
    assert again.inner_html("#chart") == after


@pytest.mark.parametrize("width", WIDTHS)
def test_a_machines_numbers_are_whole_in_their_fields(visit, width):
    page = visit(width, "#view=whatif")
    page.click("#cluster summary")
    page.locator("#cluster-numbers input").first.wait_for(timeout=START_MS)
    assert page.evaluate(f"[...document.querySelectorAll('#cluster-numbers input')].every({WHOLE})")


def test_claims_are_headed_by_their_sentences_and_a_figure_leads_on_below_them(visit):
    page = visit(anchor="#view=figure")
    page.locator("#claims article").first.wait_for(timeout=START_MS)
    heads = page.locator("#claims h3").all_inner_texts()
    assert all(re.fullmatch("“.*”", head) for head in heads)
    assert len(set(heads)) == len(heads)
    assert page.locator("#chart text", has_text="+48%").count() == 1  # the gap that the heading speaks of
    page.click("#view-figure .after >> nth=1")
    shows(page, "#artifact-description", "Figure 13")


def test_a_table_says_whole_that_it_has_no_axis(visit):
    page = visit(anchor="#view=figure&artifact=table_zero3")
    assert page.locator("#reading li").bounding_box()["height"] < 60


def test_what_a_link_has_wrong_is_said_and_stays_until_something_changes(visit):
    page = visit(anchor="#cp=2&artifact=fig_pipeline_vs_data")
    assert page.inner_text("#error").startswith("left out of the address: cp is unknown, needs one of view, artifact")
    assert page.input_value("#artifact") == "fig_pipeline_vs_data"
    page.click(".tabs [data-view=whatif]")
    settled(page)
    assert page.locator("#error").is_hidden()


def test_a_kept_layout_stands_beside_the_shown_one_and_what_limits_it_is_told(visit):
    page = visit(anchor=whatif())
    shows(page, "#memory-bar", "free")
    page.click("text=Compare with 2021’s recipe")
    shows(page, "#comparison h2", "s longer, for")
    page.click("#keep")
    shows(page, "#comparison", "Kept: now change something")
    page.click("[data-size=p] button >> nth=1")
    shows(page, "#comparison h2", "The one you kept takes")
    page.click("#comparison button >> nth=0")
    shows(page, "[data-size=p] output", "2")
    shows(page, "#limited h2", "What limits it: matrix products 64%, then layers’ sums over NVLink 24%")
    page.click("#limits")
    shows(page, "#limited h3", "What would help: NVLink twice as fast")


def test_values_at_a_line_stand_apart_on_a_phone(visit):
    page = visit(390, "#view=lessons")
    boxes = page.eval_on_selector_all(
        "#lesson-full text.k.halo", "(all) => all.map((it) => Object.values(it.getBoundingClientRect().toJSON()))"
    )
    boxes = [box[:4] for box in boxes]  # x, y, width, height
    assert len(boxes) == 6
    for (x, y, wide, high), (u, v, _, _) in pairwise(boxes):
        assert x + wide <= u or abs(y - v) >= high


def test_lessons_are_walked_through_and_lead_to_full_size(visit):
    page = visit(390, "#view=lessons&tokens=1T")
    for i, entry in enumerate(bridge.start()["lessons"]):
        page.click(f"#lessons a >> nth={i}")
        shows(page, "#lesson-title", entry["title"])
        settled(page)
        first = page.inner_text("#lesson-said")
        page.press("#lesson-value", "End")
        settled(page)
        assert page.inner_text("#lesson-said") != first or i == 0
        page.click(".quiz label >> nth=1")
        assert page.locator(".quiz[data-answered]").count() == 1
    page.click("#lessons a >> nth=0")
    shows(page, "#lesson-title", "Why a pipeline waits")
    page.click("#lesson-open")
    shows(page, "#timelines", "alike")
    settled(page)
    assert "tokens=1T" in page.evaluate("location.hash")  # a link leaves all else as it is


def test_any_schedule_is_behind_more_beside_the_usual_ones(visit):
    page = visit(390, timeline({**GPT_3, "B": 24}))
    assert page.locator("#schedules button").all_inner_texts() == ["Default (1F1B)", "Interleaved", "Zero bubble"]
    assert page.locator("#schedule-a option:checked").text_content() == "More…"
    page.select_option("#schedule-a", "gpipe")
    settled(page)
    assert page.locator("#schedules :checked").all_text_contents() == ["GPipe"]
    assert page.locator("#schedules [aria-pressed=true]").count() == 0
    page.click("#schedules button >> nth=0")
    settled(page)
    assert page.locator("#schedules option:checked").text_content() == "More…"


def test_two_schedules_stand_on_one_scale_and_one_s_own_is_drawn(visit, tmp_path):
    page = visit(anchor=timeline({**GPT_3, "B": 24}))
    page.select_option("#schedule-b", "gpipe")
    page.locator("#timelines svg").nth(1).wait_for(timeout=START_MS)
    assert page.locator("#timelines h3").count() == 2
    (tmp_path / "own.csv").write_text("0F0,0B0\n1F0,1B0\n")
    page.set_input_files("#own", tmp_path / "own.csv")
    shows(page, "#timeline-lede", "2 stages, 1 microbatches, 6 units")


def test_home_leads_to_how_far_it_is_to_be_trusted(visit):
    page = visit(390)
    page.click("text=How far to trust it")
    box = page.locator("#trust").bounding_box()
    assert 0 <= box["y"] < 900
    assert page.locator("#error").is_hidden()
    assert page.evaluate("location.hash") == ""


def test_a_phone_s_picker_has_the_figure_s_name_only_and_a_desk_s_its_title(visit):
    chosen = "#artifact option:checked"
    for width, words in ((390, "Figure 12"), (1280, "Figure 12: Interleaved versus non-interleaved schedule")):
        page = visit(width, "#view=figure")
        assert page.text_content(chosen).startswith(words)
        page.click("#view-figure .after >> nth=0")
        shows(page, "#artifact-description", "Figure 13")
    assert visit(390, "#view=figure").text_content(chosen) == "Figure 12"


def test_the_steps_of_the_wrong_statement_are_all_drawn_on_a_phone(visit):
    page = visit(320, "#view=lessons&lesson=wrong")
    assert page.locator("#lesson-picture rect.fwd").count() == 8 * 32
    assert page.locator("#lesson-picture .scroll").count() == 1


def test_a_timeline_says_how_long_its_first_stage_waits_and_is_saved_as_a_trace(visit):
    page = visit(anchor=timeline({**GPT_3, "B": 24}))
    assert page.locator("#timelines svg text", has_text=re.compile(r"^waits [\d.]+ s$")).count() == 1
    with page.expect_download() as download:
        page.click("text=Trace file")
    assert json.loads(download.value.path().read_text())["traceEvents"]

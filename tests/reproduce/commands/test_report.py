"""`reproduce report`: one page that needs nothing else, complete, escaped; and results that are none."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from benchmarks.records import ClaimResult, Number, read_record, write_record
from reproduce.cli import main
from reproduce.commands import report
from reproduce.experiment import catalog
from reproduce.output.answer import answer, claims_of
from reproduce.output.html.markup import Html, element, markup, png_image
from reproduce.output.html.tables import number_text
from reproduce.output.latex import plain
from reproduce.running.runner import Run

VOID = {"meta", "img", "br", "hr"}


class Page(HTMLParser):
    """What a page holds; fails where its tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.headers: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "th":
            self.headers.append((dict(attrs).get("class") or "", ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "th" in self.open and self.headers:
            kind, text = self.headers[-1]
            self.headers[-1] = (kind, f"{text} {data}".strip())
        if self.open and self.open[-1] not in ("style", "title"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str, attribute: str) -> list[str]:
        return [found for name, attrs in self.tags if name == tag and (found := attrs.get(attribute)) is not None]


@pytest.fixture
def results(tmp_path, figure_12: Run) -> Path:
    """A results folder with Figure 12."""
    folder = tmp_path / "results" / "fig_interleaved" / "simulated"
    folder.mkdir(parents=True)
    for path in figure_12.files:
        (folder / path.name).write_bytes(path.read_bytes())
    return tmp_path / "results"


@pytest.fixture
def change(results):
    """Change the record of Figure 12."""
    path = results / "fig_interleaved" / "simulated" / "record.json"

    def apply(make):
        write_record(make(read_record(path)), path)

    return apply


@pytest.fixture
def page_of(capsys):
    def run(results, *arguments):
        assert main(["report", "--results", str(results), *map(str, arguments)]) == 0
        return Page((arguments[1] if arguments else results / "report.html").read_text())

    return run


def test_the_page_needs_nothing_else(results, page_of):
    page = page_of(results)
    names = {name for name, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "base", "form"}
    assert page.all("img", "src")
    assert all(source.startswith("data:image/png;base64,") for source in page.all("img", "src"))
    assert all(page.all("img", "alt"))
    text = (results / "report.html").read_text()
    assert not re.search(r"url\(|@import|https?://|//[a-z]", text.split("<body>")[0])
    assert not [link for link in page.all("a", "href") if ":" in link]


def test_links_lead_somewhere(results, page_of, tmp_path):
    out = tmp_path / "elsewhere" / "deep" / "page.html"
    page = page_of(results, "--out", out)
    anchors = page.all("section", "id") + page.all("div", "id")
    assert len(anchors) == len(set(anchors))
    files = []
    for link in page.all("a", "href"):
        if link.startswith("#"):
            assert link[1:] in anchors
        else:
            assert not link.startswith("/")
            files.append((out.parent / unquote(link)).resolve())
    folder = results / "fig_interleaved" / "simulated"
    assert sorted(files) == sorted(path.resolve() for path in folder.iterdir())


def test_a_folder_with_odd_characters(results, page_of, tmp_path):
    odd = tmp_path / "a # b %20 ü"
    results.rename(odd)
    page = page_of(odd, "--out", tmp_path / "page.html")
    links = [link for link in page.all("a", "href") if not link.startswith("#")]
    assert links
    assert all((tmp_path / unquote(link)).is_file() for link in links)
    assert not any("#" in link for link in links)


def test_every_artifact_of_the_paper_has_its_section(results, page_of):
    page = page_of(results)
    sections = page.all("section", "id")
    assert [id for id in sections if id in catalog.ids()] == list(catalog.ids())
    text = page.text
    for id in catalog.ids():
        if id != "fig_interleaved":
            assert f"reproduce {id} --results {results}" in text


def test_figure_table_claims_and_provenance_are_there(results, page_of, figure_12):
    page, record = page_of(results), figure_12.record
    text = page.text
    for claim in record.claims:
        assert claim.id in text
        assert " ".join(plain(claim.sentence).split()) in text
        assert " ".join(claim.explanation.split()) in text
    for point in record.points:
        assert f"{point.metrics['throughput_per_gpu'].value / 1e12:.1f}" in text
    for note in record.notes:
        assert " ".join(note.split()) in text
    assert record.provenance.started in text
    assert record.provenance.cluster.digest[:16] in text
    assert f"1 of {len(catalog.ids())}" in text
    assert f"{len(record.points)} of {len(record.points)}" in text


def test_every_number_says_where_it_comes_from(results, page_of):
    page = page_of(results)
    numeric = [text for kind, text in page.headers if kind == "number"]
    inputs = {"points", *figure_columns()}
    marked = [text for text in numeric if text not in inputs]
    assert marked
    for text in marked:
        assert text.split()[-1].rstrip(",") in {"simulated", "derived", "paper", "plot", "table", "text", "script"}
    assert any(text.startswith("paper") and text.endswith("plot") for text in marked)


def figure_columns():
    return catalog.load("fig_interleaved").columns.values()


def test_an_origin_of_its_own_stands_at_the_number(results, page_of, change):
    def one_derived(record):
        first, *rest = record.points
        metric = replace(first.metrics["iteration_time"], origin="derived")
        return replace(record, points=(replace(first, metrics={**first.metrics, "iteration_time": metric}), *rest))

    change(one_derived)
    cells = page_of(results).text
    assert cells.count("derived") > 1


def test_what_does_not_hold_comes_first(results, page_of, change):
    def contradict(record):
        return replace(record, claims=(replace(record.claims[0], verdict="contradicted"), *record.claims[1:]))

    change(contradict)
    page = page_of(results)
    findings = page.text.split("What does not hold")[2].split("Figure 1:")[0]
    assert "contradicted" in findings
    assert "paper inconsistent" in findings
    assert "dot wrong" in page.all("span", "class")


def test_everything_from_a_record_is_escaped(results, page_of, change):
    evil = "<script>alert('&')</script>\"><img src=x onerror=alert(1)>"

    def poison(record):
        first, *rest = record.points
        claim = ClaimResult(
            *("interleaved_higher", evil, evil, "derived", evil, "contradicted", evil),
            {"x": Number(1, "1", "derived")},
        )
        points = (
            replace(first, series=evil, label=evil, parameters={**first.parameters, "B": evil}),
            replace(rest[0], status="failed", reason=evil, metrics={}),
            *rest[1:],
        )
        made = replace(record.provenance, command=(evil,), versions={"evil": evil})
        return replace(record, title=evil, points=points, claims=(claim,), notes=(evil,), provenance=made, scale=evil)

    change(poison)
    page = page_of(results)
    assert "script" not in {name for name, _ in page.tags}
    assert len(page.all("img", "src")) == 1
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert page.text.count("<script>alert('&')</script>") >= 6


def test_points_that_failed_are_shown(results, page_of, change):
    def fail(record):
        first, *rest = record.points
        out_of_memory = replace(rest[0], status="oom", reason="needs 99 GB", metrics={})
        broken = replace(first, status="failed", reason="it broke", metrics={})
        return replace(record, state="partial", points=(broken, out_of_memory, *rest[1:]))

    change(fail)
    text = page_of(results).text
    assert "it broke" in text.split("Figure 1:")[1]
    assert "needs 99 GB" in text
    assert "8 of 10" in text
    assert "Partial: the run was interrupted" in text


def test_results_of_other_sources_say_so(results, page_of, change):
    assert "Made by other sources" not in page_of(results).text
    change(lambda record: replace(record, provenance=replace(record.provenance, code_digest="0" * 64)))
    assert "Made by other sources" in page_of(results).text


def test_the_same_results_give_the_same_page(results, page_of):
    page_of(results)
    first = (results / "report.html").read_bytes()
    page_of(results)
    assert (results / "report.html").read_bytes() == first


def test_plans_are_shown(results, page_of, capsys):
    assert main(["plan", "--model", "1.7b", "--results", str(results)]) == 0
    page = page_of(results)
    assert "plans" in page.all("section", "id")
    assert "Takeaway 2" in page.text


def test_two_fidelities_of_one_artifact(results, page_of):
    source = results / "fig_interleaved" / "simulated"
    other = results / "fig_interleaved" / "emulated"
    other.mkdir()
    record = read_record(source / "record.json")
    points = tuple(
        replace(p, metrics={name: replace(metric, origin="emulated") for name, metric in p.metrics.items()})
        for p in record.points
    )
    write_record(replace(record, fidelity="emulated", points=points), other / "record.json")
    text = page_of(results).text
    assert "Emulated" in text
    assert "Simulated" in text


def test_a_folder_without_results(tmp_path, capsys):
    for results in (tmp_path, tmp_path / "none"):
        assert main(["report", "--results", str(results)]) == 9
        assert "no results in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "record.json"), (b'{"schema": "ptdp-record/1"}', "record.json"), (b"\xff\xfe", "record.json")],
)
def test_an_invalid_record_is_named(results, capsys, content, message):
    path = results / "fig_interleaved" / "simulated" / "record.json"
    path.write_bytes(content)
    assert main(["report", "--results", str(results)]) == 8
    error = capsys.readouterr().err
    assert str(path) in error
    assert len(error.strip().splitlines()) == 1
    assert path.read_bytes() == content
    assert not (results / "report.html").exists()


def test_a_record_in_the_wrong_folder(results, capsys):
    (results / "fig_interleaved").rename(results / "fig_bubble")
    assert main(["report", "--results", str(results)]) == 8
    assert "holds the record of fig_interleaved, not of fig_bubble" in capsys.readouterr().err


def test_a_record_of_another_fidelity(results, capsys):
    (results / "fig_interleaved" / "simulated").rename(results / "fig_interleaved" / "measured")
    assert main(["report", "--results", str(results)]) == 8
    assert "holds a simulated record" in capsys.readouterr().err


def test_a_figure_that_is_none(results, capsys):
    path = results / "fig_interleaved" / "simulated" / "figure.png"
    path.write_bytes(b"no picture")
    assert main(["report", "--results", str(results)]) == 8
    assert str(path) in capsys.readouterr().err


def test_without_a_figure_there_is_still_a_section(results, page_of):
    (results / "fig_interleaved" / "simulated" / "figure.png").unlink()
    page = page_of(results)
    assert not page.all("img", "src")
    assert "as_much_as_10_percent" in page.text


def test_places_that_cannot_be_written(results, capsys, tmp_path):
    assert main(["report", "--results", str(results), "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["report", "--results", str(results), "--out", str(tmp_path / "file" / "x.html")]) == 3
    assert "cannot write" in capsys.readouterr().err


def test_what_the_command_says(results, capsys, figure_12):
    assert main(["report", "--results", str(results)]) == 0
    out = capsys.readouterr().out
    assert f"1 of {len(catalog.ids())} artifacts: " in out
    assert answer(claims_of([figure_12.record])).headline in " ".join(out.split())
    assert "next: reproduce " in out


def test_collect_knows_the_default_folder(monkeypatch, results):
    monkeypatch.setattr("benchmarks.records.storage.DEFAULT_RESULTS", results)
    found = report.collect(results, results)
    assert found.command("verify") == "reproduce verify"
    assert [entry.id for entry, _ in found.shown] == ["fig_interleaved"]


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (r"as much as 10\% compared to schedules~\cite{a,b} with", "as much as 10% compared to schedules with"),
        (r"up to $1.3\times$ with", "up to 1.3× with"),
        (r"Figure~\ref{fig:x} shows $M = t \cdot p$", "Figure … shows M = t · p"),
        (r"\textbf{Takeaway \#3:} \emph{every} layer", "Takeaway #3: every layer"),
        (r"as $\frac{p-1}{m}$ (\S\ref{sec:a})", "as p-1/m (§…)"),
        ("plain text - as it is", "plain text - as it is"),
    ],
)
def test_sentences_without_their_latex(source, read):
    assert plain(source) == read


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number(40.5e9, "B", "simulated"), "40.5 GB"),
        (Number(0, "B", "simulated"), "0 B"),
        (Number(-0.0021, "s", "derived"), "-2.1 ms"),
        (Number(1.5e14, "FLOP/s", "paper"), "150 teraFLOP/s"),
        (Number(131072, "count", "derived"), "131,072"),
        (Number(0.1234, "1", "derived"), "0.1234"),
        (Number(34, "d", "derived"), "34 d"),
    ],
)
def test_numbers_are_readable(number, text):
    assert number_text(number) == text


def test_markup_is_escaped_by_construction():
    assert element("p", "a < b & 'c'", title='"x"') == '<p title="&quot;x&quot;">a &lt; b &amp; &#x27;c&#x27;</p>'
    assert element("p", Html("<b>x</b>"), None, ["y", Html("<i>z</i>")]) == "<p><b>x</b>y<i>z</i></p>"
    assert markup(None) == ""
    with pytest.raises(ValueError, match="not a PNG"):
        png_image(b"GIF89a", "")


def test_a_result_that_cannot_test_a_claim_says_nothing_against_one_that_does(results, page_of, change):
    """A measured Figure 12 beside the simulated one: its units are its own, and its claims are not counted again."""
    alone = page_of(results)
    measured = results / "fig_interleaved" / "measured" / "record.json"
    measured.parent.mkdir()
    simulated = read_record(results / "fig_interleaved" / "simulated" / "record.json")
    claims = tuple(replace(claim, verdict="not testable here") for claim in simulated.claims)
    write_record(replace(simulated, fidelity="measured", scale="cpu", claims=claims), measured)
    both = page_of(results)
    headline = answer(claims_of([simulated])).headline
    assert headline in alone.text
    assert headline in both.text
    findings = both.text.split("What does not hold")[-1].split("Figure 1:")[0]
    assert "not testable here" not in findings
    assert "gigaFLOP/s" in both.text
    assert "gigaFLOP/s" not in alone.text

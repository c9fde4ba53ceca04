"""`reproduce report`: one page that needs nothing else, complete, escaped; and results that are none."""

import base64
import hashlib
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from reproduce.annex.report import command_report as report
from reproduce.annex.report.contents import RecordFiles
from reproduce.annex.report.report_page import SCRIPTS
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.experiment.claims import OURS
from reproduce.experiment.judging import accuracy
from reproduce.experiment.predictions import time_differences
from reproduce.output.verdicts import answer, claims_of, plain
from reproduce.running.runner import record_paths
from results import ROOT
from results.records import ClaimResult, Number, read_record, write_record

VOID = {"meta", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """What a page holds; fails where its tags do not match."""

    def __init__(self, text):
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
        if self.open and self.open[-1] not in ("style", "script") and self.open[-2:] != ["head", "title"]:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag, attribute):
        return [value for name, attrs in self.tags if name == tag and (value := attrs.get(attribute)) is not None]


def with_figure_12(results, figure_12):
    """A results folder, now with Figure 12."""
    folder = results / "fig_interleaved" / "simulated"
    folder.mkdir(parents=True)
    for path in figure_12.files:
        (folder / path.name).write_bytes(path.read_bytes())
    return results


@pytest.fixture
def results(tmp_path, figure_12):
    """A results folder with Figure 12, to be changed by the test."""
    return with_figure_12(tmp_path / "results", figure_12)


@pytest.fixture(scope="module")
def usual(tmp_path_factory, figure_12):
    """A results folder with Figure 12 and its page, to be read only."""
    results = with_figure_12(tmp_path_factory.mktemp("results"), figure_12)
    assert main(["report", "--results", str(results)]) == 0
    return results


@pytest.fixture(scope="module")
def page(usual):
    return Page((usual / "report.html").read_text())


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


def test_the_page_needs_nothing_else(usual, page):
    names = {name for name, _ in page.tags}
    assert not names & {"link", "iframe", "object", "base", "form"}
    assert not page.all("script", "src")
    text = (usual / "report.html").read_text()
    assert not re.search(r"url\(|@import|https?://|//[a-z]", text.split("<body>")[0])
    assert all(link.startswith(("#", "data:text/csv;base64,")) for link in page.all("a", "href"))


def test_the_policy_allows_just_the_pages_own_scripts(usual):
    text = (usual / "report.html").read_text()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    policy = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert f'script-src {policy}">' in text


def test_links_lead_somewhere(usual, page):
    anchors = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    links = page.all("a", "href")
    assert all(link[1:] in anchors for link in links if link.startswith("#"))
    (data,) = [link for link in links if link.startswith("data:")]
    csv = usual / "fig_interleaved" / "simulated" / "table.csv"
    assert base64.b64decode(data.partition(",")[2]) == csv.read_bytes()
    assert page.all("a", "download") == ["fig_interleaved-simulated.csv"]


def test_references_inside_figures_lead_somewhere(page):
    anchors = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    used = {use[1:] for use in page.all("use", "xlink:href")}
    used |= {clip[5:-1] for _, attributes in page.tags if (clip := attributes.get("clip-path"))}
    assert used
    assert used <= anchors


def test_figures_tell_their_trend_and_values(page, figure_12):
    (text,) = page.all("svg", "aria-label")
    assert text.startswith("Figure 12, simulated: Interleaved versus non-interleaved schedule")
    assert "Interleaved rises from 121 at 12 to 146 at 60" in text
    values = [p.metrics["throughput_per_gpu"].value / 1e12 for p in figure_12.record.points]
    for point, value in zip(figure_12.record.points, values, strict=True):
        x = point.parameters["B"]
        assert f"{point.series}: {value:.4g} at Batch size (sequences) {x}" in page.text
        paper = point.paper["throughput_per_gpu"].value / 1e12
        assert f"{point.series} (paper): {paper:.4g} at Batch size (sequences) {x}" in page.text


@pytest.mark.parametrize("id", [id for id in catalog.ids() if catalog.load(id).place == OURS])
def test_what_is_beyond_the_paper_says_what_it_finds(id):
    reference = ROOT / "results" / "reference"
    for path in record_paths(reference, catalog.load(id)):
        record = read_record(path)
        artifact = catalog.load(id).at(record.scale)
        merit = RecordFiles(record, path.parent, (), artifact).merit
        assert re.search(r"\d", merit)
        assert len(merit) < 90
        partial = replace(record, points=record.points[:1], claims=())
        assert isinstance(RecordFiles(partial, path.parent, (), artifact).merit, str)


def test_a_results_distance_is_that_from_the_paper_or_else_from_the_prediction(figure_12):
    path = ROOT / "results" / "reference" / "fig_interleaved" / "emulated" / "record.json"
    emulated, artifact = read_record(path), catalog.load("fig_interleaved")
    score = accuracy(artifact, figure_12.record.points)
    assert RecordFiles(figure_12.record, path, (), artifact).merit == f"{score.mean:.1%} from the paper"
    apart = time_differences(emulated.points)
    shown = RecordFiles(emulated, path, (), artifact.at(emulated.scale)).merit
    assert shown == f"{apart.mean:.1%} from the prediction"


def test_every_artifact_of_the_paper_has_its_section(usual, page):
    sections = page.all("div", "id")
    assert [id for id in sections if id in catalog.ids()] == list(catalog.ids())
    text = page.text
    for id in catalog.ids():
        if id != "fig_interleaved":
            assert f"reproduce {id} --results {usual}" in text


def test_figure_table_claims_and_provenance_are_there(page, figure_12):
    record, text = figure_12.record, page.text
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


def test_every_number_says_where_it_comes_from(page):
    numeric = [text for kind, text in page.headers if kind == "number"]
    sentences = {"counted", "the paper's own", "not judged"}  # how many were judged so
    inputs = {"points", *sentences, *figure_columns()}
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


def test_what_is_contradicted_comes_first(results, page_of, change):
    def contradict(record):
        return replace(record, claims=(replace(record.claims[0], verdict="contradicted"), *record.claims[1:]))

    change(contradict)
    page = page_of(results)
    verdicts = page.all("tr", "data-verdict")
    assert verdicts[0] == "contradicted"
    assert "paper-inconsistent" in verdicts
    chosen = [attributes["id"] for name, attributes in page.tags if name == "input" and "checked" in attributes]
    assert chosen == ["show-contradicted"]
    assert page.text.index("papers hold?") < page.text.index("contradicted") < page.text.index("Figure 1 ")


def test_everything_from_a_record_is_escaped(results, page_of, change):
    evil = "<script>alert('&')</script>\"><img src=x onerror=alert(1)>"

    def poison(record):
        first, *rest = record.points
        claim = ClaimResult(
            *("interleaved_higher", evil, evil, "derived", evil, "contradicted", evil), {"x": Number(1, "1", "derived")}
        )
        points = (
            replace(first, series=evil, label=evil, parameters={**first.parameters, "v": evil}),
            replace(rest[0], status="failed", reason=evil, metrics={}),
            *rest[1:],
        )
        provenance = replace(record.provenance, command=(evil,), versions={"evil": evil})
        return replace(
            record, title=evil, points=points, claims=(claim,), notes=(evil,), provenance=provenance, scale=evil
        )

    change(poison)
    page = page_of(results)
    assert [name for name, _ in page.tags].count("script") == len(SCRIPTS)
    assert not page.all("img", "src")
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
    assert text.count("it broke") > 1  # in the list of what failed, and where it belongs
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


def test_a_page_is_written_again_only_if_something_that_it_shows_has_changed(results, page_of, change):
    page, folder = results / "report.html", results / "fig_interleaved" / "simulated"

    def is_written():
        os.utime(page, (0, 0))
        page_of(results)
        return page.stat().st_mtime > 0

    page_of(results)
    assert not is_written()
    (folder / "timelines.png").write_bytes((folder / "figure.png").read_bytes())
    assert is_written()
    assert not is_written()
    change(lambda record: replace(record, notes=("something new",)))
    assert is_written()
    (folder / "table.csv").write_text("a,b\n")
    assert is_written()
    (folder / "figure.pdf").unlink()
    assert is_written()
    page.write_text("<html>")
    assert is_written()


@pytest.mark.slow
def test_plans_are_shown(results, page_of, capsys):
    assert main(["plan", "--model", "1.7b", "--results", str(results)]) == 0
    page = page_of(results)
    assert "plans" in page.all("details", "id")
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
    assert text.index("Figure 12, simulated on selene") < text.index("Emulated, scale paper")


def test_a_folder_without_results(tmp_path, refused):
    for results in (tmp_path, tmp_path / "none"):
        assert "no results in" in refused("report", "--results", results, code=9)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "record.json"), (b'{"schema": "ptdp-record/1"}', "record.json"), (b"\xff\xfe", "record.json")],
)
def test_an_invalid_record_is_named(results, refused, content, message):
    path = results / "fig_interleaved" / "simulated" / "record.json"
    path.write_bytes(content)
    assert str(path) in refused("report", "--results", results, code=8)
    assert path.read_bytes() == content
    assert not (results / "report.html").exists()


def test_a_record_in_the_wrong_folder(results, refused):
    (results / "fig_interleaved").rename(results / "fig_bubble")
    assert "holds the record of fig_interleaved, not of fig_bubble" in refused("report", "--results", results, code=8)


def test_a_record_of_another_fidelity(results, refused):
    (results / "fig_interleaved" / "simulated").rename(results / "fig_interleaved" / "measured")
    assert "holds a simulated record" in refused("report", "--results", results, code=8)


def test_a_picture_that_is_none_is_left_out_with_a_line(results, page_of, capsys):
    folder = results / "fig_interleaved" / "simulated"
    (folder / "timelines.png").write_bytes(b"<script>alert(1)</script>")
    (folder / "other.png").write_bytes((folder / "figure.png").read_bytes())
    page = page_of(results)
    assert capsys.readouterr().err == f"reproduce: {folder / 'timelines.png'} is not a PNG file; it is left out\n"
    assert "timelines.png is not a PNG file; it is left out." in page.text
    assert page.all("img", "alt") == ["other"]


def test_places_that_cannot_be_written(results, refused, tmp_path):
    assert "is a folder" in refused("report", "--results", results, "--out", tmp_path)
    (tmp_path / "file").write_text("")
    assert "there is no folder" in refused("report", "--results", results, "--out", tmp_path / "file" / "x.html")


def test_what_the_command_says(results, said, figure_12):
    out = said("report", "--results", results)
    assert f"1 of {len(catalog.ids())} artifacts: " in out
    assert answer(claims_of([figure_12.record])).headline in " ".join(out.split())
    assert "next: reproduce " in out


def test_collect_knows_the_default_folder(monkeypatch, results):
    monkeypatch.setattr("results.records.storage.DEFAULT_RESULTS", results)
    collected = report.collect(results)
    assert collected.command("verify") == "reproduce verify"
    assert [entry.artifact.id for entry, _ in collected.shown] == ["fig_interleaved"]


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (r"as much as 10\% compared to schedules~\cite{a,b} with", "as much as 10% compared to schedules with"),
        (r"up to $1.3\times$ with", "up to 1.3× with"),
        (r"Figure~\ref{fig:x} shows $M = t \cdot p$", "Figure … shows M = t · p"),
        (r"\textbf{Takeaway \#3:} \emph{every} layer", "Takeaway #3: every layer"),
        (r"as $\frac{p-1}{m} = \frac{n/t-1}{m}$ (\S\ref{sec:a})", "as (p-1)/m = (n/t-1)/m (§…)"),
        (r"$\dfrac{8TP}{nX}$", "8TP/(nX)"),
        (r"$\frac{t^{\text{int.}}_{pb}}{t_{id}}=\frac{1}{v}$", "t^int._pb/t_id=1/v"),
        ("plain text - as it is", "plain text - as it is"),
    ],
)
def test_sentences_without_their_latex(source, read):
    assert plain(source) == read


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
    assert "not-testable-here" not in both.all("tr", "data-verdict")
    assert "gigaFLOP/s" in both.text
    assert "gigaFLOP/s" not in alone.text

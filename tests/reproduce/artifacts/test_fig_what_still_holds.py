"""What still holds: each era is judged as in the paper's own figures, on what the era has, and crossings are found."""

from types import SimpleNamespace

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.annex.papers.beyond import fig_what_still_holds as artifact
from reproduce.annex.papers.beyond.fig_what_still_holds import A100, ARTIFACT, H100, ROWS, of_era
from reproduce.experiment import margins
from reproduce.experiment.alternatives import with_margins
from reproduce.experiment.judging import judge
from reproduce.output import theme
from reproduce.papers.sc21 import fig_tensor_vs_pipeline
from results import ROOT
from results.records import read_record


@pytest.fixture
def results(results_for):
    """Both eras with 100 FLOP/s at every point, and 50 where a point's parameters satisfy `slow`."""

    def of(slow=lambda q: False):
        return results_for(ARTIFACT, {"throughput_per_gpu": lambda p: 50.0 if slow(p.parameters) else 100.0})

    return of


def test_an_era_has_the_figures_own_points():
    for row in ROWS:
        own = row.points
        for era in (A100, H100):
            points = [p for p in ARTIFACT.points() if p.key.startswith(f"{era.split()[0].lower()}_{row.artifact.id}_")]
            assert [p.key.split(f"{row.artifact.id}_", 1)[1] for p in points] == [p.key for p in own]
            assert [p.label for p in points] == [p.label for p in own]
            for point, original in zip(points, own, strict=True):
                kept = {**point.parameters}
                today = {name: kept.pop(name, None) for name in ("cluster", "attention", "sequence_parallel")}
                if era == H100:
                    t = original.parameters["t"]
                    assert today == {"cluster": "h100", "attention": "sdpa", "sequence_parallel": t > 1}
                    kept["recompute"] = original.parameters.get("recompute")
                    kept = {name: value for name, value in kept.items() if value is not None}
                assert kept == dict(original.parameters)
    assert all(TrainingConfig.from_plain(point.parameters) for point in ARTIFACT.points())


def test_every_row_is_a_claim_that_is_judged_by_its_figure(results):
    assert [claim.id for claim in ARTIFACT.claims] == [*(row.claim for row in ROWS), "public_measurements"]
    everything = results(lambda q: q["t"] > 8 or (q["t"] < 8 and "cluster" in q))
    first = next(row for row in ROWS if row.claim == "best_at_node_size")
    assert of_era(everything, first.artifact, H100).points[0].key == first.artifact.points()[0].key
    assert first.judge(everything, H100).verdict == "holds"
    wrong = results(lambda q: q["t"] == 8 and "cluster" in q)
    assert first.judge(wrong, H100).verdict == "contradicted"
    claim = next(claim for claim in ARTIFACT.claims if claim.id == "best_at_node_size")
    assert judge(claim, wrong).verdict == "contradicted"
    assert judge(claim, everything).verdict == "holds"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_an_era_of_2021_has_the_verdict_of_the_figure_itself(row):
    """One sentence on one set of points has one verdict: the margins apply to the figure, and here."""

    def judged(id):
        record = read_record(ROOT / "results" / "reference" / id / "simulated" / "record.json")
        return {claim.id: claim for claim in record.claims}[row.claim]

    here, there = judged(ARTIFACT.id), judged(row.artifact.id)
    assert here.explanation.startswith(f"{A100}: {there.verdict} ({there.explanation}); {H100}: {here.verdict} (")


@pytest.mark.parametrize(("lead", "verdict"), [(1.05, "inconclusive"), (1.5, "holds")])
def test_a_verdict_that_a_margin_can_flip_is_inconclusive_in_both_eras(results_for, lead, verdict):
    speeds = {"throughput_per_gpu": lambda point: lead if point.parameters["t"] == 8 else 1.0}
    gpu = SimpleNamespace(usable_memory=80e9)
    sure = with_margins(results_for(ARTIFACT, speeds), margins.read("selene"), lambda point: gpu)
    row = next(row for row in ROWS if row.claim == "best_at_node_size")
    assert [row.judge(sure, era).verdict for era in (A100, H100)] == [verdict, verdict]


def test_crossings():
    assert artifact._crossing([(1.0, 2.0), (100.0, 0.0)], 1.0) == pytest.approx(10.0)
    assert artifact._crossing([(1.0, 2.0), (100.0, 1.5)], 1.0) is None


def test_the_figure_has_every_verdict_with_the_number_that_decides():
    record = read_record(ROOT / "results" / "reference" / ARTIFACT.id / "simulated" / "record.json")
    with theme.style():
        figure = ARTIFACT.draw(ARTIFACT, record)
        figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert max(box.x1 for box in boxes) <= figure.bbox.x1
    shown = [text.get_text() for text in axes.texts]
    sure = artifact._with_margins(record)
    for row in ROWS:
        for era in (A100, H100):
            place = shown.index(row.text) + 2 + 2 * (era == H100)
            verdict, number = shown[place : place + 2]
            assert verdict == artifact.LOOKS[row.judge(sure, era).verdict][1]
            assert number == row.number(sure, era) != ""
    lines = of_era(sure, fig_tensor_vs_pipeline.ARTIFACT, A100).by_batch("throughput_per_gpu", "t")
    assert ROWS[0].number(sure, A100) == f"{lines[128][8] / lines[128][4] - 1:+.0%} (B=128)"

"""What still holds: each era is judged as in the paper's own figures, on what the era has, and crossings are found."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.artifacts import fig_what_still_holds as artifact
from reproduce.artifacts.fig_what_still_holds import A100, ARTIFACT, H100, ROWS, of_era
from reproduce.experiment.claims import judge


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
    assert len({point.key for point in ARTIFACT.points()}) == len(ARTIFACT.points())


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


def test_crossings():
    assert artifact._crossing([(1.0, 2.0), (100.0, 0.0)], 1.0) == pytest.approx(10.0)
    assert artifact._crossing([(1.0, 2.0), (100.0, 1.5)], 1.0) is None

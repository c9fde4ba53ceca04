"""What an interrupted run leaves of any artifact is drawn and reported: whichever points are missing or failed."""

from dataclasses import replace
from random import Random

import pytest

from reproduce.annex.report.record_pictures import picture
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.experiment.judging import judgement
from reproduce.experiment.results import Results
from reproduce.output.figures import drawn
from reproduce.running.runner import record_paths
from results import ROOT
from results.records import read_record, write_record

REFERENCE = ROOT / "results" / "reference"


def interrupted(record, points):
    return replace(record, state="partial", points=points, claims=(), notes=())


def left_by(random, points):
    """Some of the points, one at least; of these one in five failed or did not fit."""
    share = random.choice((0.1, 0.5, 0.9))
    kept = [point for point in points if random.random() < share] or [random.choice(points)]
    bad = {point.key: random.choice(("failed", "oom")) for point in kept if random.random() < 0.2}
    return tuple(
        replace(point, status=bad[point.key], reason="broke", metrics={}) if point.key in bad else point
        for point in kept
    )


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_whatever_is_left_of_all_artifacts_makes_a_report(tmp_path, seed):
    random, there = Random(seed), 0
    for artifact in map(catalog.load, catalog.ids()):
        for path in record_paths(REFERENCE, artifact):
            record = read_record(path)
            place = tmp_path / path.relative_to(REFERENCE)
            place.parent.mkdir(parents=True)
            write_record(interrupted(record, left_by(random, record.points)), place)
            there += 1
    assert there >= len(catalog.ids())
    assert main(["report", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text().count("Partial: the run was interrupted") == there


@pytest.mark.parametrize(
    ("id", "fidelity", "left", "said"),
    [
        ("fig_parallelism_grid", "derived", "model_1_7b", "Nothing to draw: point 'drawn' was not evaluated."),
        (
            "fig_tensor_partition",
            "derived",
            "layer_t8",
            "Nothing to draw: no point of series 'parameters' was evaluated.",
        ),
        ("fig_scatter_gather_paths", "derived", "with_t2", "Nothing to draw: no point of label 't=8' was evaluated."),
        ("fig_gpipe_timeline", "emulated", "gpipe-p2-m8", "Nothing to draw: no point has a timeline."),
    ],
)
def test_a_figure_without_what_it_shows_says_so_in_a_line(id, fidelity, left, said):
    record = read_record(REFERENCE / id / fidelity / "record.json")
    (point,) = (point for point in record.points if point.key == left)
    artifact = catalog.load(id).at(record.scale)
    figure = drawn(artifact, interrupted(record, (point,)))
    assert [text.get_text().replace("\n", " ") for text in figure.axes[0].texts] == [said]
    assert picture(artifact, interrupted(record, (point,)), "name")


@pytest.mark.parametrize("id", ["fig_model_trend", "fig_schedule_zoo", "fig_what_still_holds"])
def test_a_figure_of_one_point_shows_it(id):
    record = read_record(next(iter(record_paths(REFERENCE, catalog.load(id)))))
    figure = drawn(catalog.load(id), interrupted(record, record.points[:1]))
    assert "Nothing to draw" not in "".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_a_claim_on_a_part_of_the_points_is_not_judged():
    record = read_record(REFERENCE / "fig_zero3" / "simulated" / "record.json")
    claim = catalog.load("fig_zero3").claims[0]
    judged = judgement(claim, Results.of_record(interrupted(record, record.points[::2])))
    assert (judged.verdict, judged.explanation) == ("inconclusive", "not judged: the run was interrupted")

"""`reproduce accuracy`: which points count, moves of the parameters, what is printed and written."""

import json
from dataclasses import replace

import pytest
from pandas import DataFrame

from ptdp_core.simulator import load_cluster, read_parameters
from reproduce.annex.accuracy import error_figures, sensitivity
from reproduce.annex.accuracy.accuracy import assess, evaluators_of, predict
from reproduce.annex.accuracy.published_points import beside, published_points
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.output.theme import style
from results import ROOT
from results.records import Metric, errors, read_record
from tests.points import made

IDS = ("fig_interleaved", "table_recompute_memory", "fig_scatter_gather")


# ------------------------------------------------------------------------------------------------------ the whole


@pytest.fixture(scope="module")
def assessment():
    return assess([catalog.load(id) for id in IDS], "selene")


@pytest.mark.slow
def test_groups_and_overall(assessment):
    assert {name: scored.score.n for name, scored in assessment.scores.items()} == {
        "fig_interleaved": 10,
        "fig_scatter_gather": 10,
        "throughput per GPU only": 15,
        "all": 15,
    }
    assert assessment.duplicates == 5
    errors = list(assessment.values.error[assessment.values.counted])
    assert assessment.scores["all"].score.mean == pytest.approx(sum(map(abs, errors)) / 15)
    assert assessment.scores["all"].score.bias == pytest.approx(sum(errors) / 15)
    assert abs(assessment.scores["all"].score.worst) == max(map(abs, errors))


@pytest.mark.slow
def test_predictions_are_those_of_the_artifacts(assessment, figure_12):
    values = assessment.values[assessment.values.artifact == "fig_interleaved"]
    ours = dict(zip(values.key, values.ours, strict=True))
    expected = {p.key: p.metrics["throughput_per_gpu"].value for p in figure_12.record.points}
    assert ours == expected


@pytest.mark.slow
def test_artifacts_without_published_values_are_counted(assessment):
    (artifact,) = assessment.unpublished
    assert (artifact["id"], artifact["points"]) == ("table_recompute_memory", 10)
    assert 0 < artifact["predictions"] <= 10


@pytest.mark.slow
def test_every_parameter_is_moved_to_both_ends(assessment):
    ways = set(zip(assessment.moves["name"], assessment.moves.way, strict=True))
    for name, parameter in read_parameters("selene").items():
        assert ((name, "low") in ways) == (parameter.low < parameter.value)
        assert ((name, "high") in ways) == (parameter.value < parameter.high)
    assert {(name, "dropped") for name in (*sensitivity.MECHANISMS, sensitivity.LOGITS)} <= ways


@pytest.mark.slow
def test_moves_change_the_score_from_what_it_is(assessment):
    base = assessment.scores["all"].score.mean
    moves = {(move.name, move.way): move for move in assessment.moves.itertuples()}
    for move in moves.values():
        if not move.lost:
            assert move.mean == pytest.approx(base + move.change)
            assert sum(before for before, _ in move.groups.values()) > 0
    assert moves["memory_efficiency", "low"].change != 0
    assert moves["zero3_bandwidth", "low"].change == 0  # no point of these figures uses it
    assert moves["tensor_all_reduce", "dropped"].change != 0
    assert moves["embedding_and_logits", "dropped"].change != 0


def test_moves_leave_the_cluster_alone():
    cluster = load_cluster("selene")
    values = {name: parameter.value for name, parameter in read_parameters("selene").items()}
    *variants, (logits, *_, unchanged) = sensitivity.variants(cluster, read_parameters("selene"))
    assert (logits, unchanged) == (sensitivity.LOGITS, None)
    for name, way, value, _, changed in variants:
        different = {key for key in values if getattr(changed, key) != values[key]}
        assert different == ({name} if way != "dropped" or name in values else different)
        assert different
        if value is not None:
            assert getattr(changed, name) == value
    assert {key: getattr(cluster, key) for key in values} == values


def test_without_logits_an_iteration_is_faster_for_the_same_flops():
    evaluators = evaluators_of([catalog.load("fig_interleaved")], "selene")
    values, _ = predict([catalog.load("fig_interleaved")], evaluators)
    without = sensitivity.errors(values[:1], sensitivity._without_logits(evaluators))
    assert 1 < (1 + without[0]) / (1 + values.error[0]) < 1.2


def test_points_that_no_longer_fit_are_counted_and_not_compared():
    published = published_points([catalog.load("fig_interleaved")])[:2]

    def evaluate(row, factor=1.1):
        if row.key == published.key[1] and factor == 1.1:
            return made(status="oom")
        return replace(made(status="ok"), metrics={row.metric: Metric(factor * row.paper, "FLOP/s", "simulated")})

    known = beside(published, [evaluate(row, 1.3 + 0.2 * row.Index) for row in published.itertuples()])
    move = sensitivity._rescored(known, evaluate)
    assert move["lost"] == 1
    assert (move["mean"], move["change"]) == (pytest.approx(0.1), pytest.approx(0.1 - 0.3))
    assert move["groups"] == {"fig_interleaved": (pytest.approx(0.3), pytest.approx(0.1))}
    assert sensitivity._rescored(known[1:], evaluate) == {"mean": None, "change": 0.0, "groups": {}, "lost": 1}


# ------------------------------------------------------------------------------------------------------ the command


@pytest.fixture
def quick(monkeypatch, assessment):
    """The command line gets the assessment that there is, if it asks for it."""

    def assess(artifacts, cluster, start, debug, refitted):
        assert [artifact.id for artifact in artifacts] == list(IDS)
        assert cluster == "selene"
        start(3)("a step")
        return assessment

    monkeypatch.setattr("reproduce.experiment.catalog.ids", lambda *paper: IDS)
    monkeypatch.setattr("reproduce.annex.accuracy.accuracy.assess", assess)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_json_and_files(tmp_path, capsys):
    assert main(["accuracy", "--json", "--results", str(tmp_path)]) == errors.DONE
    out = capsys.readouterr()
    document = json.loads(out.out)
    assert "accuracy: " in out.err
    assert (document["cluster"], document["origin"]) == ("selene", "simulated")
    assert [group["id"] for group in document["groups"]] == ["fig_interleaved", "fig_scatter_gather"]
    assert set(document["overall"]["score"]) == {"n", "mean", "bias", "worst", "worst_point", "rank", "missing"}
    assert set(document["overall"]["baselines"]) == {"constant", "line_in_h", "constant_with_bubble"}
    assert document["unpublished"][0]["id"] == "table_recompute_memory"
    point = document["groups"][1]["points"][-1]
    assert point["counted"] is False
    assert point["error"] == pytest.approx(point["ours"] / point["published"] - 1)
    assert {"name", "value", "unit", "low", "high", "source", "set_with"} == set(document["parameters"][0])
    assert {"name", "way", "value", "mean", "change", "groups", "lost", "meaning"} == set(document["moves"][0])
    record = read_record(tmp_path / "accuracy" / "record.json")
    assert (record.kind, record.id, record.fidelity) == ("comparison", "accuracy", "simulated")
    assert {point.series for point in record.points} == {
        *("Figure 12", "Figure 18", "score", "sensitivity", "parameter")
    }
    score_of_all = next(point for point in record.points if point.key == "score:all")
    assert score_of_all.metrics["mean_error"].value == document["overall"]["score"]["mean"]
    assert sorted(path.name for path in (tmp_path / "accuracy").iterdir()) == sorted(document["files"])


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_terminal_is_readable_at_100_columns(tmp_path, said):
    out = said("accuracy", "--results", tmp_path)
    before, _, _ = out.partition("files:")
    assert max(map(len, before.splitlines())) <= 100
    assert "…" not in out  # nothing cut off
    for text in ("fig_scatter_gather", "Section 3.5 (10 of 10 points)", "5 repeat", "set with: public", "gemm_plateau"):
        assert text in out


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_point_that_failed_exits_with_4(tmp_path, monkeypatch, assessment):
    results = [made(status="failed"), *assessment.values.result[1:]]
    broken = replace(assessment, values=assessment.values.assign(result=results))
    monkeypatch.setattr("reproduce.annex.accuracy.accuracy.assess", lambda *arguments: broken)
    assert main(["accuracy", "--results", str(tmp_path)]) == errors.POINTS_FAILED


# ------------------------------------------------------------------------------------------------------- the figures


def test_errors_are_dots_in_a_row_for_each_group_with_number_and_mean():
    points = DataFrame({"group": ["a", "a", "b"], "error": [0.1, -0.2, 0.04]})
    with style():
        axes = error_figures.errors(points, "values", ["simulated"]).axes[0]
    rows = [list(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "o"]
    assert rows == [pytest.approx([10, -20]), pytest.approx([4])]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.texts] == ["2", "15.0%", "1", "4.0%", "n", "mean"]


@pytest.mark.parametrize(("record", "n"), [("blind_score", 56), ("blind_modern", 222)])
def test_the_figure_of_a_sealed_record_has_every_error(record, n):
    with style():
        axes = error_figures.sealed(
            read_record(ROOT / "results/reference" / record / "record.json"), "values", []
        ).axes[0]
    assert sum(len(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "o") == n


@pytest.mark.slow
def test_the_figure_has_every_counted_value(assessment):
    with style():
        axes = error_figures.published(assessment).axes[0]
    drawn = [list(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "o"]
    assert dict(zip([label.get_text() for label in axes.get_yticklabels()], map(len, drawn), strict=True)) == {
        "Figure 12": 10,
        "Figure 18": 5,
    }
    assert drawn[0][0] == pytest.approx(100 * assessment.values.error.iloc[0])


@pytest.mark.slow
def test_bars_start_at_the_score_and_end_at_the_moved_one_and_nothing_is_off_the_chart(assessment):
    with style():
        axes = error_figures.bars(assessment).axes[0]
    base = 100 * assessment.scores["all"].score.mean
    names = [label.get_text() for label in axes.get_yticklabels()]
    shown = sensitivity.means(assessment.moves)[: len(names)]
    assert names == list(map(error_figures.readable, shown.index))
    assert names[0] == error_figures.readable(assessment.moves["name"][assessment.moves.change.abs().argmax()])
    means = set((100 * assessment.moves["mean"] - base).round(9))
    for bar in axes.patches:
        assert bar.get_x() == pytest.approx(base)
        assert round(bar.get_width(), 9) in means
    left, right = axes.get_xlim()
    assert left < 100 * shown.min(axis=None)
    assert 100 * shown.max(axis=None) < right


@pytest.mark.slow
def test_figures_are_byte_stable(assessment):
    files, again = (error_figures.render(assessment) for _ in range(2))
    assert files == again
    assert set(files) == {"figure.pdf", "figure.png", "sensitivity.pdf", "sensitivity.png"}


@pytest.mark.slow
def test_the_whole_paper_is_assessed(tmp_path, as_json):
    assert as_json("accuracy", "--results", tmp_path)["overall"]["score"]["n"] > 50

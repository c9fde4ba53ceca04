"""`reproduce accuracy` against measured runs: what is compared, what is left out, the baselines, what is written."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import flops_per_iteration
from ptdp_core.simulator import cluster_path, load_cluster, simulate
from reproduce.annex.accuracy.measured import SHARED, assess, find, predict
from reproduce.cli import main
from results.records import Host, Metric, Record, errors, read_record, write_record
from results.records.provenance import collect
from tests.points import made

MODEL = ModelConfig(4, 256, 8, 128, 1024)
HOST = Host("Linux 6", "x86_64", "A CPU", 2, 8 << 30)
NAME = "A CPU, 2 cores"
LAYOUTS = {
    "serial": {"B": 8, "recompute": "none"},
    "recompute": {"B": 8},
    "pipeline": {"p": 2, "B": 8},
    "data": {"d": 2, "B": 8},
}

Save = Callable[..., Path]


@pytest.fixture
def cluster(tmp_path):
    """Selene's numbers as if they were a calibration's of a CPU with two cores."""
    text = cluster_path("selene").read_text().replace('name = "selene"', f'host = "{NAME}"')
    text = text.replace("value = 8\n", "value = 2\n", 1).replace("range = [8, 8]", "range = [2, 2]", 1)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def save(tmp_path, cluster):
    """Writes a record of measured steps that took `factor` times what is predicted."""

    def write(layouts=LAYOUTS, factor=1.25, id="fig_x", folder="measured", host=HOST, origin="measured", **parameters):
        points = []
        for label, layout in layouts.items():
            config = TrainingConfig(MODEL, ParallelConfig(**layout))
            model = load_cluster(cluster)
            seconds = factor * predict(config, model, host.logical_cores)
            metrics = {"iteration_time": Metric(seconds, "s", origin, (seconds,))}
            points.append(made(label, metrics, series="steps", **config.to_plain() | {"device": "cpu"} | parameters))
        made_by = replace(collect(["reproduce"], datetime(2021, 11, 14, 9, tzinfo=UTC), 1.0), host=host)
        record = Record("artifact", id, "X", None, "measured", "cpu", "complete", made_by, tuple(points))
        path = tmp_path / "results" / id / folder / "record.json"
        write_record(record, path)
        return path

    return write


def test_predictions_are_the_simulators(save, cluster):
    (record,) = [save()]
    assessment = assess([record], cluster)
    assert assessment.host == NAME
    assert list(assessment.steps.key) == list(LAYOUTS)
    for step in assessment.steps.itertuples():
        expected = simulate(TrainingConfig(MODEL, ParallelConfig(**LAYOUTS[step.key])), load_cluster(cluster))
        assert step.ours == expected.iteration_time
        assert step.error == pytest.approx(1 / 1.25 - 1)
    scores = assessment.scores()
    assert list(scores) == ["1 rank", "2 ranks", "all"]
    assert [score.n for score, _ in scores.values()] == [2, 2, 4]
    assert scores["all"][0].mean == pytest.approx(0.2)
    assert scores["all"][0].bias == pytest.approx(-0.2)


def test_the_baselines_count_what_is_executed(save, cluster):
    by_key = {step.key: step for step in assess([save()], cluster).steps.itertuples()}
    peak = load_cluster(cluster).peak_flops
    B, s, h, V = 8, 128, 256, 1024
    one_pass = 4 * (24 * B * s * h**2 + 4 * B * s**2 * h)
    logits = 6 * B * s * h * V
    assert by_key["serial"].flops_over_peak == pytest.approx((3 * one_pass + logits) / peak)
    assert by_key["recompute"].flops_over_peak == pytest.approx((4 * one_pass + logits) / peak)
    assert by_key["data"].flops_over_peak == pytest.approx(by_key["recompute"].flops_over_peak / 2)
    assert by_key["serial"].flops_over_peak_with_bubble == by_key["serial"].flops_over_peak
    pipeline = by_key["pipeline"]
    assert pipeline.flops_over_peak_with_bubble == pytest.approx(pipeline.flops_over_peak * (1 + 1 / 8))


def test_ranks_that_share_cores_take_at_least_the_cores_work(save, cluster):
    layouts = {"four": {"d": 4, "B": 16}, "pipeline": {"p": 4, "B": 16}}
    assessment = assess([save(layouts)], cluster)
    assert list(assessment.scores()) == [SHARED, "all"]
    model = replace(load_cluster(cluster), gpus_per_node=4)
    for step in assessment.steps.itertuples():
        alone = simulate(step.config, model)
        assert step.shared
        assert step.ours == max(alone.iteration_time, 2 * (alone.iteration_time - alone.phase_times["bubble"]))
        assert step.ours > alone.iteration_time
    data, pipeline = assessment.steps.itertuples()
    assert data.ours == pytest.approx(2 * simulate(data.config, model).iteration_time)
    # The bubble of a rank is another's time on its core.
    assert pipeline.ours < 2 * simulate(pipeline.config, model).iteration_time
    work = flops_per_iteration(MODEL, 16)  # of four ranks, by two cores
    assert list(assessment.steps.flops_over_peak) == [pytest.approx(work / 2 / model.peak_flops)] * 2


def test_a_machine_with_a_core_for_every_rank_is_one_node(save, cluster):
    host = replace(HOST, logical_cores=8)
    mine = Path(cluster)
    mine.write_text(mine.read_text().replace(NAME, "A CPU, 8 cores"))
    (step,) = assess([save({"four": {"d": 4, "B": 16}}, host=host)], cluster).steps.itertuples()
    assert not step.shared
    assert step.ours == simulate(step.config, replace(load_cluster(cluster), gpus_per_node=4)).iteration_time


def test_more_ranks_than_a_node_of_gpus_are_several_nodes(save, cluster, tmp_path):
    gpus = replace(HOST, gpus=("G",), gpu_count=2)
    mine = Path(cluster)
    mine.write_text(mine.read_text().replace(NAME, "2 x G"))
    other = tmp_path / "gpu.toml"
    mine.rename(other)
    mine.write_text(other.read_text())
    record = save({"four": {"d": 4, "B": 16}}, host=gpus, device="cuda", dtype="fp16")
    (step,) = assess([record], str(other)).steps.itertuples()
    assert not step.shared
    assert step.ours == simulate(step.config, load_cluster(str(other))).iteration_time


def test_zero3_is_predicted_as_such(save, cluster):
    (step,) = assess([save({"zero3": {"d": 2, "B": 8, "data_parallel": "zero3"}})], cluster).steps.itertuples()
    assert step.config.parallel.data_parallel == "zero3"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"host": replace(HOST, cpu="Another")}, f"measured on another machine than {NAME}"),
        ({"dtype": "fp32"}, "of 4 bytes an element, where the file has 2"),
        ({"exchange": "overlapped"}, "with exchange=overlapped, where the engine was calibrated with blocking"),
        ({"attention": "sdpa"}, "with attention=sdpa, where the engine was calibrated with operators"),
        ({"kernels": "compiled"}, "with kernels=compiled, where the engine was calibrated with auto"),
        ({"hidden": 255}, "whose parameters are no training configuration"),
        ({"origin": "emulated"}, "without a measured iteration time"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_compared_is_left_out_with_a_reason(save, cluster, changes, reason):
    assessment = assess([save(), save(id="fig_y", **changes)], cluster)
    assert len(assessment.steps) == len(LAYOUTS)
    assert assessment.left_out == {reason: len(LAYOUTS)}


def test_the_command(save, cluster, tmp_path, said, as_json):
    save()
    save(id="calibration", folder="measured-again", factor=2.0)
    results = tmp_path / "results"
    (results / "fig_x" / "simulated").mkdir()
    assert [path.parent.parent.name for path in find(results)] == ["calibration", "fig_x"]
    arguments = ["accuracy", "--cluster", cluster, "--results", str(results)]
    printed = said(*arguments)
    assert "Training steps in milliseconds: measured, and predicted with the cluster mine" in printed
    assert "fig_x: pipeline" in printed
    assert "-20.0%" in printed
    assert "-50.0%" in printed
    folder = results / "accuracy_measured"
    assert sorted(path.name for path in folder.iterdir()) == ["figure.pdf", "figure.png", "record.json"]
    record = read_record(folder / "record.json")
    points = {point.key: point for point in record.points}
    c = points["fig_x:serial"].metrics
    assert (c["iteration_time"].origin, c["predicted_iteration_time"].origin) == ("measured", "simulated")
    assert c["relative_error"].value == pytest.approx(-0.2)
    assert points["score:all"].metrics["mean_error"].value == pytest.approx(0.35)
    assert points["score:all"].metrics["points"].value == 8

    before = (folder / "figure.pdf").read_bytes()
    document = as_json(*arguments)
    assert (document["cluster"], document["host"], document["scores"]["all"]["n"]) == ("mine", NAME, 8)
    assert document["steps"][0].keys() >= {"record", "label", "measured", "predicted", "error", "flops_over_peak"}
    assert (folder / "figure.pdf").read_bytes() == before


@pytest.mark.slow
def test_what_is_compared_follows_the_file_unless_told(save, cluster, tmp_path, capsys, monkeypatch):
    save()
    monkeypatch.setattr("reproduce.annex.accuracy.accuracy.assess", lambda *arguments: pytest.fail("the paper's"))
    results = ["--results", str(tmp_path / "results")]
    assert main(["accuracy", "--cluster", cluster, *results]) == errors.DONE
    assert main(["accuracy", "--against", "measured", *results]) == errors.DONE  # Selene's own file
    with pytest.raises(pytest.fail.Exception):
        main(["accuracy", "--cluster", cluster, "--against", "paper", *results])


def test_nothing_to_compare(cluster, tmp_path, save, refused):
    arguments = ["accuracy", "--cluster", cluster, "--results", str(tmp_path / "results")]
    assert "no measured training step to compare with; run an artifact with --fidelity" in refused(
        *arguments, code=errors.NOTHING_SELECTED
    )
    path = save(host=replace(HOST, cpu="Another"))
    assert f"(4 measured on another machine than {NAME})" in refused(*arguments, code=errors.NOTHING_SELECTED)
    path.write_text("{}")
    assert "move the file away" in refused(*arguments, code=errors.INVALID_RESULTS)

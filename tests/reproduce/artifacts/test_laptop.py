"""Scale 'laptop': small enough for one machine, quick enough to emulate, and each figure's effect is to be seen."""

from pathlib import Path

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.experiment import catalog
from reproduce.experiment.judging import judgement
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import LAPTOP
from reproduce.running import runner
from reproduce.running.fidelities import expected_seconds

EMULATED = [id for id in catalog.ids() if LAPTOP in catalog.load(id).scales]
DIRECTIONS = {
    "fig_interleaved": {"improves_throughput", "improves_small_batches", "interleaved_higher", "gap_closes"},
    "fig_schedules": set(),
    "fig_scatter_gather": {"communication_intensive", "bytes_reduced_by_t"},
    "fig_pipeline_weak_scaling": {"higher_batch_scales_better"},
    "fig_tensor_vs_pipeline": {
        *("best_at_node_size", "bubble_falls_with_t", "both_in_conjunction", "communication_rises_with_t")
    },
    "fig_pipeline_vs_data": {
        *("throughput_falls_with_p", "matches_analytical_model", "larger_batch_faster", "data_parallelism_to_scale")
    },
    "fig_tensor_vs_data": set(),
    "fig_microbatch": set(),
    "fig_recomputation": {"needed_for_larger_batches"},
}


COUNTED = {"bytes_reduced_by_t", "communication_rises_with_t"}


def plan(id, fidelity="emulated"):
    return runner.plan(catalog.load(id), Path(), fidelity, LAPTOP)


@pytest.mark.parametrize("id", EMULATED)
def test_the_points_can_be_emulated_on_one_machine(id):
    artifact = catalog.load(id)
    assert artifact.scales_at("emulated") == (LAPTOP,)
    points = artifact.points(LAPTOP)
    for point in points:
        parallel = TrainingConfig.from_plain(point.parameters).parallel
        assert parallel.n <= 16
        assert "gpus_per_node" in point.parameters, f"{id}, scale laptop: say how many GPUs a node has"
        assert point.parameters["gpus_per_node"] <= parallel.n or parallel.n == 1
        assert not point.paper  # the paper ran other configurations
    emulated = artifact.at(LAPTOP)
    assert emulated.title != artifact.title
    assert emulated.description != artifact.description


def test_there_are_enough_points_and_they_take_little_time():
    seconds = {id: expected_seconds(plan(id)) for id in EMULATED}
    run = [time for times in seconds.values() for time in times if time]  # those out of memory are not run
    assert len(run) >= 40
    assert sum(run) < 20 * 60
    assert sum(seconds["fig_interleaved"]) < 3 * 60
    assert expected_seconds(plan("fig_interleaved", "simulated")) == (0.0,) * 8


@pytest.mark.parametrize("id", DIRECTIONS)
def test_the_papers_directions_are_to_be_seen(id, tmp_path):
    """As simulated; how sure that is nobody knows, so that the record's verdicts are no more than the counted ones."""
    artifact = catalog.load(id)
    record = runner.run(runner.plan(artifact, tmp_path, "simulated", LAPTOP), ["reproduce"]).record
    assert record.title == artifact.at(LAPTOP).title
    seen = [claim for claim in artifact.claims if LAPTOP in claim.scales]
    assert {claim.id for claim in seen} == DIRECTIONS[id]
    assert all(judgement(claim, Results.of_record(record)).verdict == "holds" for claim in seen)
    verdicts = {claim.id: claim.verdict for claim in record.claims if claim.verdict != "not testable here"}
    assert {id for id, verdict in verdicts.items() if verdict == "holds"} <= COUNTED
    assert set(verdicts.values()) <= {"holds", "inconclusive"}


def test_the_best_microbatch_size_is_in_the_interior(tmp_path):
    artifact = catalog.load("fig_microbatch")
    record = runner.run(runner.plan(artifact, tmp_path, "simulated", LAPTOP), ["reproduce"]).record
    assert "fastest b, of 1, 2, 4, 8: B=32: 2, B=64: 2" in record.notes


def test_recomputation_has_its_crossover():
    recomputation = plan("fig_recomputation")
    times = expected_seconds(recomputation)
    fits = {point.key: seconds > 0 for point, seconds in zip(recomputation.points, times, strict=True)}
    assert [key for key, fit in fits.items() if not fit] == ["none_B8", "none_B16", "none_B32"]

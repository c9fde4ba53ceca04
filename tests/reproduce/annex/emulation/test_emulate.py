"""The engine on virtual accelerators does what its schedule says, moves what the simulator counts, in modelled time."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from ptdp_core.config import ModelConfig
from ptdp_core.launch.local import RankError
from ptdp_core.schedules import build, peak_stash
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from reproduce.annex.emulation import emulate
from reproduce.annex.emulation.plan import make_plan
from reproduce.planning.failures import straggler_slowdowns
from tests.reproduce.annex.emulation.jobs import EXPERTS, SMALL, config

SELENE = load_cluster()


@pytest.mark.parametrize(
    ("parallel", "per_node"),
    [
        ({"p": 4, "b": 1, "B": 8, "schedule": "gpipe"}, 1),
        ({"p": 4, "b": 1, "B": 8}, 1),
        ({"p": 4, "v": 2, "b": 1, "B": 8}, 1),
        ({"p": 2, "t": 2, "b": 1, "B": 4}, 2),
        ({"p": 2, "t": 2, "b": 1, "B": 4, "scatter_gather": False}, 2),
        pytest.param({"p": 2, "t": 2, "b": 1, "B": 4, "sequence_parallel": True}, 2, marks=pytest.mark.slow),
        ({"p": 2, "d": 2, "b": 1, "B": 8}, 1),
    ],
    ids=lambda value: "-".join(f"{k}{v}" for k, v in value.items()) if isinstance(value, dict) else f"nodes{value}",
)
def test_order_bytes_and_stash(able, parallel, per_node):
    emulation = emulate(config(**parallel), SELENE, gpus_per_node=per_node, iterations=1)
    job, expected = emulation.config.parallel, emulation.prediction
    schedule = build(job.schedule, job.p, job.m, job.v)
    executed = [tuple(event.action for event in row if event.action) for row in emulation.timeline]
    assert emulation.order_ok
    assert executed == list(schedule.ranks)
    assert emulation.peak_stash == max(peak_stash(schedule))
    assert emulation.traffic["pipeline"] == expected.traffic["pipeline"]
    for use in ("data", "embedding"):
        assert emulation.traffic[use] == pytest.approx(expected.traffic[use], rel=1e-3)


def test_passes_take_the_modelled_time_and_follow_each_other(able):
    job = config(p=2, v=2, b=1, B=4, recompute="selective")
    emulation = emulate(job, SELENE, gpus_per_node=1, iterations=1)
    plan = make_plan(job, SELENE.in_nodes_of(1), 1, 0)
    for row in emulation.timeline:
        assert all(before.end <= after.start + 1e-9 for before, after in pairwise(row))
        for before, event in zip([None, *row], row, strict=False):
            if event.action is not None:
                stage = plan.stages[event.action.stage]
                modelled = stage.forward if event.kind == "F" else stage.backward
                # An event starts when its input is put together, which is part of the pass's time.
                assert event.end - (before.end if before else 0.0) >= modelled - 1e-9
    assert max(row[-1].end for row in emulation.timeline) == emulation.iteration_time
    assert emulation.samples_s == (emulation.iteration_time,)


def test_the_prediction_is_for_the_emulated_machine(able):
    emulation = emulate(config(p=2, t=2, b=1, B=4), SELENE, gpus_per_node=2, iterations=1)
    assert emulation.prediction.config == emulation.config
    assert emulation.prediction.timeline
    assert "emulated" in emulation.prediction.cluster
    rate = emulation.link_rates["one message"]
    assert rate.asked == SELENE.hca_bandwidth
    assert 0.3 * rate.asked < rate.achieved < 3 * rate.asked


@pytest.mark.parametrize(
    ("sequence_parallel", "all_reduces"),
    [
        # 8 layers: 2 all-reduces forward, 2 recomputed, 2 backward; 1 for the embedding and 1 for the logits.
        (False, 8 * 6 + 2),
        # Half an all-reduce for each of 2 inputs gathered again in a layer, and the input of the logits gathered twice,
        # the gradient of the embedding once.
        pytest.param(True, 8 * (6 + 1) + 2 + 0.5, marks=pytest.mark.slow),
    ],
)
def test_tensor_groups_between_nodes_really_communicate(able, sequence_parallel, all_reduces):
    job = config(p=1, t=2, b=1, B=2, sequence_parallel=sequence_parallel)
    emulation = emulate(job, SELENE, gpus_per_node=1, iterations=1)
    boundary = 2 * SMALL.seq * SMALL.hidden
    assert emulation.traffic["tensor"] == all_reduces * 2 * boundary
    assert {"tensor"} == emulation.link_rates.keys()


@pytest.mark.parametrize(
    ("parallel", "per_node"),
    [
        ({"p": 2, "d": 2, "e": 2, "b": 1, "B": 4}, 1),
        ({"p": 1, "d": 4, "e": 2, "b": 1, "B": 4, "recompute": "full"}, 1),
        pytest.param(
            {"t": 2, "d": 2, "e": 4, "etp": 1, "b": 1, "B": 4, "sequence_parallel": True}, 2, marks=pytest.mark.slow
        ),
    ],
    ids=["pipeline", "replicas", "whole experts"],
)
def test_tokens_really_go_to_experts_on_other_nodes(able, parallel, per_node):
    """As many bytes as the simulator counts, of tokens and of the gradients of experts and of all else."""
    emulation = emulate(config(EXPERTS, **parallel), SELENE, gpus_per_node=per_node, iterations=1)
    expected = emulation.prediction.traffic
    assert emulation.order_ok
    assert emulation.traffic["experts"] == expected["experts"] > 0
    assert emulation.traffic["pipeline"] == expected["pipeline"]
    assert emulation.traffic["data"] == pytest.approx(expected["data"], rel=5e-3)  # sizes are rounded piece by piece
    assert {"experts", "data"} <= emulation.link_rates.keys()


@pytest.mark.parametrize("per_node", [1, 2])
def test_fused_pairs_run_together_in_the_order_of_their_schedule(able, per_node):
    """With exchanges between nodes, which really run, and inside of them, which take the modelled time."""
    job = config(EXPERTS, p=2, d=2, e=2, v=2, b=1, B=8, schedule="dualpipev-overlap", recompute="full")
    emulation = emulate(job, SELENE, gpus_per_node=per_node, iterations=1)
    table = build("dualpipev-overlap", 2, 4, 2)
    assert emulation.order_ok
    assert emulation.peak_stash == max(peak_stash(table))
    assert emulation.traffic.get("experts", 0) == (emulation.prediction.traffic["experts"] if per_node == 1 else 0)
    for row in (emulation.timeline[0], emulation.prediction.timeline[0]):
        pairs = [(a, b) for a, b in pairwise(row) if (a.start, a.end) == (b.start, b.end)]
        assert {a.action for a, _ in pairs} == {action for action in table.fused if action in table.ranks[0]}
        assert all((a.kind, b.kind) == ("F", "B") for a, b in pairs)


def test_inside_a_node_tokens_take_the_modelled_time(able):
    job = config(EXPERTS, d=2, e=2, b=1, B=4)
    emulation = emulate(job, SELENE, gpus_per_node=2, iterations=1)
    stage = CostModel(SELENE.in_nodes_of(2)).stages(job)[0]
    assert "experts" not in emulation.traffic
    for event in emulation.timeline[0]:
        if event.action is not None:
            assert event.end - event.start >= (stage.forward if event.kind == "F" else stage.backward) - 1e-9


def test_overlapped_and_split_backward_passes(able):
    overlapped = emulate(config(p=1, d=2, b=1, B=4, data_parallel="torch"), SELENE, gpus_per_node=1, iterations=1)
    assert overlapped.traffic["data"] == pytest.approx(overlapped.prediction.traffic["data"], rel=2e-3)
    split = emulate(config(p=2, b=1, B=4, schedule="zb-h1"), SELENE, gpus_per_node=1, iterations=1)
    assert split.order_ok
    assert {event.kind for event in split.timeline[1]} >= {"F", "I", "W"}


@pytest.mark.parametrize(
    ("arguments", "parallel", "message"),
    [
        ({"gpus_per_node": 0}, {"p": 2, "B": 2}, "gpus_per_node=0 is not positive; needs gpus_per_node >= 1"),
        ({"gpus_per_node": 1, "iterations": 0}, {"p": 2, "B": 2}, "iterations=0 is not positive"),
        ({"gpus_per_node": 1}, {"d": 2, "B": 2, "data_parallel": "zero3"}, "data_parallel='zero3' is not emulated"),
        ({"gpus_per_node": 1}, {"c": 2, "B": 2}, "c=2 is not emulated; needs c=1"),
        (
            {"gpus_per_node": 1},
            {"p": 2, "B": 2, "schedule": "1f1b+vocab-1"},
            r"share the vocabulary, is not emulated; needs one without; try schedule='1f1b'",
        ),
        (
            {"gpus_per_node": 1},
            {"model": EXPERTS, "d": 2, "B": 2, "expert_imbalance": 1.2},
            "expert_imbalance=1.2 is not emulated; needs as many tokens on every rank; try expert_imbalance=1",
        ),
        (
            {"gpus_per_node": 1},
            {"model": EXPERTS, "t": 2, "d": 2, "B": 2, "e": 2},
            "t=2 on nodes of gpus_per_node=1 with e=2, etp=2 is not emulated; needs tensor groups inside a node",
        ),
    ],
)
def test_what_cannot_be_emulated(arguments, parallel, message):
    with pytest.raises(ValueError, match=message):
        emulate(config(**parallel), SELENE, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("slow", range(4))
def test_a_slow_rank_costs_what_is_predicted(slow, able, monkeypatch):
    """The passes of one pipeline rank really take 10% longer: within 2% of the prediction."""
    job = config(ModelConfig(8, 8192, 64, vocab=128), p=4, b=1, B=12)
    machine = SELENE.in_nodes_of(1)
    slowdown = straggler_slowdowns(simulate(job, machine), machine, 0.1)[slow]
    monkeypatch.setattr("reproduce.annex.emulation.run.make_plan", partial(_plan_with_slow_rank, slow))
    emulation = emulate(job, SELENE, gpus_per_node=1, iterations=5)
    assert emulation.prediction.iteration_time * (1 + slowdown) == pytest.approx(emulation.iteration_time, rel=0.02)


def _plan_with_slow_rank(slow, *arguments):
    plan = make_plan(*arguments)
    stages = [
        replace(stage, forward=1.1 * stage.forward, backward=1.1 * stage.backward) if rank == slow else stage
        for rank, stage in enumerate(plan.stages)
    ]
    return replace(plan, stages=tuple(stages))


def test_an_error_in_a_rank_names_it(able, monkeypatch):
    monkeypatch.setattr("reproduce.annex.emulation.run._rank", _broken)
    with pytest.raises(RankError, match=r"rank \d failed: ZeroDivisionError"):
        emulate(config(p=2, b=1, B=2), SELENE, gpus_per_node=1)


def _broken(beat, plan, folder):
    return 1 / 0

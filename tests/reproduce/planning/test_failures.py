"""What failures and slow GPUs cost: closed forms against simulated events, the executed schedule, published runs."""

from math import exp

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from reproduce.planning.failures import Failures, straggler_slowdowns
from reproduce.planning.time_shares import time_shares

DAY = 86400
LLAMA_3 = 54 * DAY / 466  # seconds between interruptions of 16,384 GPUs (arXiv:2407.21783, Section 3.3.4)


@pytest.mark.parametrize(("mtbf", "checkpoint", "restart"), [(10_000, 30, 600), (3_000, 120, 300), (1e6, 60, 900)])
def test_the_events_have_the_share_of_the_closed_form(mtbf, checkpoint, restart):
    failures = Failures(mtbf, checkpoint, restart)
    for interval in (failures.best_interval / 2, failures.best_interval, 3 * failures.best_interval):
        simulated = failures.simulated_share(interval, checkpoints=50_000)
        assert simulated == pytest.approx(failures.effective_share(interval), rel=0.01)


@pytest.mark.parametrize("checkpoint", [1, 30, 600, 9_000])
def test_no_interval_is_better_than_the_best(checkpoint):
    failures = Failures(10_000, checkpoint, 300)
    best = failures.effective_share(failures.best_interval)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert failures.effective_share(factor * failures.best_interval) < best


def test_young_and_daly_are_near_the_best_interval_where_checkpoints_are_short():
    failures = Failures(10_000, 30, 300)
    assert failures.daly_interval == pytest.approx(failures.best_interval, rel=1e-4)
    assert failures.young_interval == pytest.approx(failures.best_interval, rel=0.03)
    assert Failures(10, 30, 300).daly_interval == 10


def test_without_checkpoints_to_write_only_restarts_and_lost_work_are_left():
    """The limit of short intervals and C = 0: e^(-R/M)."""
    assert Failures(10_000, 0, 600).effective_share(1e-3) == pytest.approx(exp(-0.06), rel=1e-6)


def test_llama_3_reaches_its_ninety_percent_only_with_short_checkpoints_and_restarts():
    """Over 90% effective at 466 interruptions in 54 days: what was not published has to be as short as this."""

    def share(checkpoint, restart):
        failures = Failures(LLAMA_3, checkpoint, restart)
        return failures.effective_share(failures.best_interval)

    assert share(10, 300) > 0.90 > share(60, 300)
    assert share(10, 600) == pytest.approx(0.90, abs=0.005)


def slowdowns(vocab, slower=0.1, **sizes):
    """By pipeline rank, and the share of the iteration in which a GPU computes."""
    cluster = load_cluster()
    estimate = simulate(TrainingConfig(ModelConfig(24, 4096, 32, vocab=vocab), ParallelConfig(**sizes)), cluster)
    shares = time_shares(estimate, cluster)
    computing = (shares["computation"] + shares["recomputation"]) / estimate.iteration_time
    return straggler_slowdowns(estimate, cluster, slower), computing


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
def test_in_a_long_batch_of_equal_stages_all_wait_for_the_straggler(schedule):
    """With no logits to speak of, the iteration is longer by what the slow rank computes longer.

    A rank in the middle hides a part of it behind the first and last, which have a little more to do.
    """
    v = 3 if schedule == "interleaved" else 1
    of_ranks, computing = slowdowns(128, p=4, t=8, d=1, b=1, v=v, B=256, schedule=schedule)
    assert all(0.75 * 0.1 * computing < slowdown < 1.05 * 0.1 * computing for slowdown in of_ranks)


def test_behind_the_stage_with_the_logits_a_straggler_hides():
    (first, *_, last), computing = slowdowns(128_000, p=4, t=8, d=1, b=1, B=256)
    assert first < 0.3 * 0.1 * computing
    assert last > 0.1 * computing


def test_without_a_pipeline_the_straggler_s_computing_is_the_iteration_s():
    of_ranks, computing = slowdowns(51_200, 0.2, p=1, t=8, d=4, b=1, B=32)
    assert of_ranks == [pytest.approx(0.2 * computing)]


def test_no_straggler_costs_nothing_and_a_slower_one_more():
    sizes = {"p": 4, "t": 8, "d": 1, "b": 1, "B": 32}
    none, some, more = (slowdowns(51_200, slower, **sizes)[0] for slower in (0.0, 0.1, 0.2))
    assert none == [0, 0, 0, 0]
    assert all(0 <= a < b for a, b in zip(some, more, strict=True))


def test_a_host_slower_by_ten_percent_costs_megascale_s_layout_some_points_of_mfu():
    """MegaScale (arXiv:2402.15627) got 0.7 points back without such hosts; slower in both passes they cost more."""
    model = ModelConfig(96, 12288, 128, vocab=64_000)
    parallel = ParallelConfig(p=8, t=8, d=192, v=6, b=1, B=6144, recompute="selective", sequence_parallel=True)
    cluster = load_cluster("a100-80")
    estimate = simulate(TrainingConfig(model, parallel), cluster)
    of_ranks = straggler_slowdowns(estimate, cluster, 0.1)
    mfu = estimate.model_flops_utilization
    lost = mfu - mfu / (1 + sum(of_ranks) / len(of_ranks))
    assert 0.007 < lost < 0.025

"""The randomisation test, its interval, Holm and the looks, each against something computed another way."""

from itertools import product

import numpy as np
import pytest

from benchmarks.gate.procedure import (
    EXCLUDED,
    IMPROVED,
    INCONCLUSIVE,
    LOOKS,
    NO_SPEED_UP,
    OK,
    REGRESSED,
    SLOW_DOWN_EXCLUDED,
    SLOW_DOWN_TOLERATED,
    SWAPS,
    TOLERATED,
    Hypothesis,
    Procedure,
    holm,
    interval,
    null_distribution,
    overall,
    p_value,
    statistic,
    swap_table,
    swap_tables,
)


def launches(pairs: int, slowdown: float = 0.0, seed: int = 0, sd: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, sd, pairs), rng.normal(np.log1p(slowdown), sd, pairs)


def test_the_statistic_is_the_difference_of_the_faster_halves() -> None:
    assert statistic(np.array([4.0, 1.0, 3.0, 9.0]), np.array([2.0, 8.0, 7.0, 5.0])) == (2 + 5) / 2 - (1 + 3) / 2


@pytest.mark.parametrize("pairs", [4, 12])
def test_the_first_looks_swaps_are_all_there_are(pairs: int) -> None:
    table = swap_table(pairs, np.random.default_rng(0))
    assert table.shape == (pairs, 2**pairs)
    assert len({tuple(column) for column in table.T}) == 2**pairs
    assert not table[:, 0].any()


def test_later_looks_have_as_many_at_random() -> None:
    table = swap_tables(3)[20]
    assert table.shape == (20, SWAPS)
    assert not table[:, 0].any()
    assert abs(table[:, 1:].mean() - 0.5) < 0.01
    assert not np.array_equal(table, swap_tables(4)[20])


@pytest.mark.parametrize("pairs", [4, 6, 12])
def test_the_null_distribution_is_that_of_swapping_and_sorting(pairs: int) -> None:
    base, head = launches(pairs, 0.02)
    table = swap_table(pairs, np.random.default_rng(0))
    expected = [statistic(np.where(s, head, base), np.where(s, base, head)) for s in table.T]
    np.testing.assert_allclose(null_distribution(base, head, table), expected, atol=1e-12)


def test_p_values_count_the_relabellings_at_least_as_far() -> None:
    base, head = launches(6, 0.02)
    table = swap_table(6, np.random.default_rng(0))
    shifted = head - 0.01
    every = [
        statistic(*(np.array([pair[s ^ side] for pair, s in zip(zip(base, shifted, strict=True), swap, strict=True)])
                    for side in (0, 1)))
        for swap in product((0, 1), repeat=6)
    ]  # fmt: skip
    count = sum(t >= every[0] - 1e-12 for t in every)
    assert p_value(base, head, Hypothesis(0.01, at_most=True), table) == pytest.approx(count / 64)
    assert p_value(base, head, Hypothesis(0.01, at_most=False), table) == 1.0  # T is on that side


def test_the_test_is_exact_for_exchangeable_noise() -> None:
    """At the edge of a hypothesis p is uniform: 5% of the p-values are at most 5%, whatever the noise."""
    table, rng = swap_table(8, np.random.default_rng(0)), np.random.default_rng(1)
    p_values = []
    for _ in range(600):
        drift = np.cumsum(rng.normal(0, 0.1, 8))
        base, head = (drift + rng.standard_t(2, 8) * 0.02 for _ in range(2))
        p_values.append(p_value(base, head + TOLERATED, SLOW_DOWN_TOLERATED, table))
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.025)


def test_the_interval_is_what_the_test_does_not_reject() -> None:
    base, head = launches(12, 0.05)
    table = swap_tables(0)[12]
    found = interval(base, head, 0.001, table)
    assert found.lower < found.estimate < found.upper
    assert found.estimate == pytest.approx(np.expm1(statistic(base, head)))
    for bound, at_most, outward in ((found.lower, True, -1), (found.upper, False, 1)):
        edge = np.log1p(bound)
        assert p_value(base, head, Hypothesis(edge + outward * 1e-5, at_most), table) <= 0.001
        assert p_value(base, head, Hypothesis(edge - outward * 1e-5, at_most), table) > 0.001


def test_too_few_pairs_bound_nothing() -> None:
    found = interval(*launches(4, 0.5), 0.001, swap_table(4, np.random.default_rng(0)))
    assert (found.lower, found.upper) == (-1.0, np.inf)


def test_holm() -> None:
    p = {"a": 0.001, "b": 0.02, "c": 0.04}
    assert holm(p, 0.05, 3) == {"a", "b", "c"}
    assert holm(p, 0.05, 4) == {"a"}  # one more in the family, not tested: 0.02 > 0.05/3
    assert holm({"a": 0.02, "b": 0.03}, 0.05, 2) == {"a", "b"}
    assert holm({"a": 0.03, "b": 0.03}, 0.05, 2) == set()


def decide(slowdowns: dict[str, float], sd: float = 0.01, seed: int = 0) -> Procedure:
    procedure = Procedure(tuple(slowdowns), swap_tables(0))
    data = {name: launches(LOOKS[-1].pairs, s, seed + i, sd) for i, (name, s) in enumerate(slowdowns.items())}
    while procedure.next_look:
        procedure.look(*({name: both[side] for name, both in data.items()} for side in (0, 1)))
    return procedure


def test_verdicts_of_a_quiet_machine() -> None:
    found = decide({"same": 0.0, "slow": 0.15, "fast": -0.15})
    assert found.verdicts == {"same": OK, "slow": REGRESSED, "fast": IMPROVED}
    assert found.done == 1


def test_a_slow_down_between_the_margins_that_is_known_exactly_has_regressed() -> None:
    assert decide({"a": 0.065}, sd=1e-4).verdicts == {"a": REGRESSED}


def test_noise_that_hides_everything_is_inconclusive() -> None:
    found = decide({"a": 0.0}, sd=1.0)
    assert found.verdicts == {}
    assert (found.done, found.next_look) == (len(LOOKS), None)


def test_a_decided_benchmark_is_not_looked_at_again() -> None:
    procedure = Procedure(("quiet", "loud"), swap_tables(0))
    quiet, loud = launches(12), launches(12, sd=1.0)
    procedure.look({"quiet": quiet[0], "loud": loud[0]}, {"quiet": quiet[1], "loud": loud[1]})
    assert procedure.undecided == ("loud",)
    loud = launches(20, sd=1.0)
    procedure.look({"loud": loud[0]}, {"loud": loud[1]})  # needs no times of the other one
    assert procedure.verdicts == {"quiet": OK}


def test_the_margins_are_three_and_ten_percent_both_ways() -> None:
    assert np.expm1([TOLERATED, EXCLUDED]) == pytest.approx([0.03, 0.10])
    assert [h.shift for h in (SLOW_DOWN_TOLERATED, SLOW_DOWN_EXCLUDED, NO_SPEED_UP)] == [
        TOLERATED,
        EXCLUDED,
        -TOLERATED,
    ]
    assert LOOKS == ((12, 0.001), (20, 0.002), (32, 0.002))


def test_a_suite_is_ok_only_if_all_of_it_is() -> None:
    assert overall([OK, OK]) == OK
    assert overall([OK, IMPROVED]) == IMPROVED
    assert overall([OK, INCONCLUSIVE, IMPROVED]) == INCONCLUSIVE
    assert overall([INCONCLUSIVE, REGRESSED]) == REGRESSED
    assert overall([]) == INCONCLUSIVE

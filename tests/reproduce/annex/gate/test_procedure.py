"""The randomisation test, its interval, Holm and the looks, each against something computed another way."""

from itertools import product

import numpy as np
import pytest

from reproduce.annex.gate import procedure as procedures
from reproduce.annex.gate.procedure import (
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

ROUNDS = 3


def measure(pairs, slowdown=0.0, seed=0, sd=0.01):
    return np.random.default_rng(seed).normal(np.log1p(slowdown), sd, (pairs, ROUNDS))


def test_the_statistic_is_the_interquartile_mean_of_all_rounds():
    assert statistic(np.array([[1.0, 100.0], [3.0, 2.0], [4.0, 5.0], [-70.0, 6.0]])) == (2 + 3 + 4 + 5) / 4


@pytest.mark.parametrize("pairs", [4, 12])
def test_the_first_looks_swaps_are_all_there_are(pairs):
    table = swap_table(pairs, np.random.default_rng(0))
    assert table.shape == (pairs, 2**pairs)
    assert len({tuple(column) for column in table.T}) == 2**pairs
    assert not table[:, 0].any()


def test_later_looks_have_as_many_at_random():
    table = swap_tables(3)[20]
    assert table.shape == (20, SWAPS)
    assert not table[:, 0].any()
    assert abs(table[:, 1:].mean() - 0.5) < 0.01
    assert not np.array_equal(table, swap_tables(4)[20])


def test_the_null_distribution_is_that_of_swapping_base_and_head_in_pairs():
    rng = np.random.default_rng(0)
    base, head = rng.normal(0, 1, (2, 6, ROUNDS))
    table = swap_table(6, rng)
    expected = []
    for swap in table.T:
        sides = [(h, b) if s else (b, h) for b, h, s in zip(base, head, swap, strict=True)]
        ordered = sorted(x for b, h in sides for x in h - b)
        expected.append(sum(ordered[4:14]) / 10)  # 18 // 4 off at either end
    np.testing.assert_allclose(null_distribution(head - base, table), expected, atol=1e-12)


def test_p_values_count_the_relabellings_at_least_as_far():
    measured = measure(6, 0.02)
    table = swap_table(6, np.random.default_rng(0))
    shifted = measured - 0.01
    every = [statistic(shifted * np.array(signs)[:, None]) for signs in product((1, -1), repeat=6)]
    count = sum(t >= every[0] - 1e-12 for t in every)
    assert p_value(measured, Hypothesis(0.01, at_most=True), table) == pytest.approx(count / 64)
    assert p_value(measured, Hypothesis(0.01, at_most=False), table) == 1.0  # T is on that side


def test_the_test_is_exact_for_exchangeable_noise():
    """At the edge of a hypothesis p is uniform: 5% of the p-values are at most 5%, whatever the noise."""
    table, rng = swap_table(8, np.random.default_rng(0)), np.random.default_rng(1)
    p_values = []
    for _ in range(600):
        common = np.exp(np.cumsum(rng.normal(0, 1, (8, 1)), axis=0))  # pairs that are noisier than others
        base, head = (rng.standard_t(2, (8, ROUNDS)) * common * 0.02 for _ in range(2))
        p_values.append(p_value(head - base + TOLERATED, SLOW_DOWN_TOLERATED, table))
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.025)


def test_the_interval_is_what_the_test_does_not_reject():
    differences = measure(12, 0.05)
    table = swap_tables(0)[12]
    bounds = interval(differences, 0.001, table)
    assert bounds.lower < bounds.estimate < bounds.upper
    assert bounds.estimate == pytest.approx(np.expm1(statistic(differences)))
    for bound, at_most, outward in ((bounds.lower, True, -1), (bounds.upper, False, 1)):
        edge = np.log1p(bound)
        assert p_value(differences, Hypothesis(edge + outward * 1e-5, at_most), table) <= 0.001
        assert p_value(differences, Hypothesis(edge - outward * 1e-5, at_most), table) > 0.001


def test_too_few_pairs_bound_nothing():
    bounds = interval(measure(4, 0.5), 0.001, swap_table(4, np.random.default_rng(0)))
    assert (bounds.lower, bounds.upper) == (-1.0, np.inf)


def test_holm():
    p = {"a": 0.001, "b": 0.02, "c": 0.04}
    assert holm(p, 0.05, 3) == {"a", "b", "c"}
    assert holm(p, 0.05, 4) == {"a"}  # one more in the family, not tested: 0.02 > 0.05/3
    assert holm({"a": 0.02, "b": 0.03}, 0.05, 2) == {"a", "b"}
    assert holm({"a": 0.03, "b": 0.03}, 0.05, 2) == set()


def decide(slowdowns, sd=0.01, seed=0):
    procedure = Procedure(tuple(slowdowns), swap_tables(0))
    data = {name: measure(LOOKS[-1].pairs, s, seed + i, sd) for i, (name, s) in enumerate(slowdowns.items())}
    while procedure.next_look:
        procedure.look(data)
    return procedure


def test_verdicts_of_a_quiet_machine():
    decided = decide({"same": 0.0, "slow": 0.15, "fast": -0.15})
    assert decided.verdicts == {"same": OK, "slow": REGRESSED, "fast": IMPROVED}
    assert decided.done == 1


def test_a_slow_down_between_the_margins_that_is_known_exactly_has_regressed():
    assert decide({"a": 0.065}, sd=1e-4).verdicts == {"a": REGRESSED}


def test_noise_that_hides_everything_is_inconclusive():
    decided = decide({"a": 0.0}, sd=1.0)
    assert decided.verdicts == {}
    assert (decided.done, decided.next_look) == (len(LOOKS), None)


def test_a_decided_benchmark_is_not_looked_at_again():
    procedure = Procedure(("quiet", "loud"), swap_tables(0))
    procedure.look({"quiet": measure(12), "loud": measure(12, sd=1.0)})
    assert procedure.undecided == ("loud",)
    procedure.look({"loud": measure(20, sd=1.0)})  # needs no times of the other one
    assert procedure.verdicts == {"quiet": OK}


def test_what_an_earlier_look_rejected_leaves_the_family(monkeypatch):
    """The second look may spend 0.2% on the two that are left, so 0.1% on the first of them."""
    monkeypatch.setattr(
        procedures, "p_value", lambda logs, hypothesis, swaps: logs[0] if hypothesis == SLOW_DOWN_TOLERATED else 1.0
    )
    procedure = Procedure(("a", "b", "c"), swap_tables(0))
    procedure.look({"a": np.array([0.0]), "b": np.array([0.0009]), "c": np.array([1.0])})
    assert procedure.verdicts == {"a": REGRESSED}
    procedure.look({"b": np.array([0.0009]), "c": np.array([1.0])})
    assert procedure.verdicts == {"a": REGRESSED, "b": REGRESSED}


def test_the_margins_are_three_and_ten_percent_both_ways():
    assert np.expm1([TOLERATED, EXCLUDED]) == pytest.approx([0.03, 0.10])
    assert [h.shift for h in (SLOW_DOWN_TOLERATED, SLOW_DOWN_EXCLUDED, NO_SPEED_UP)] == [
        TOLERATED,
        EXCLUDED,
        -TOLERATED,
    ]
    assert LOOKS == ((12, 0.001), (20, 0.002), (32, 0.002))


def test_a_suite_is_ok_only_if_all_of_it_is():
    assert overall([OK, OK]) == OK
    assert overall([OK, IMPROVED]) == IMPROVED
    assert overall([OK, INCONCLUSIVE, IMPROVED]) == INCONCLUSIVE
    assert overall([INCONCLUSIVE, REGRESSED]) == REGRESSED
    assert overall([]) == INCONCLUSIVE

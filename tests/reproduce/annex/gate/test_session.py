"""Sessions with a launcher, a canary and a clock that are made up."""

import itertools
import random

import numpy as np
import pytest

from reproduce.annex.gate import guard
from reproduce.annex.gate.guard import Reading, disturbed
from reproduce.annex.gate.procedure import INCONCLUSIVE, OK, REGRESSED, Procedure, swap_tables
from reproduce.annex.gate.session import CANARIES, FIRST_READINGS, ROUNDS, SLICES, SPARE_REDOS, RoundTimes, Session
from reproduce.annex.gate.trees import BASE, HEAD

ROUND_S, CANARY_S = 4.0, 0.005
ALWAYS = 10_000  # canaries of any session


class Machine:
    """Clock, canary and launcher in one. `factors`: how much slower head is; `slow_canaries`: by number."""

    def __init__(self, factors, noise=0.01):
        self.factors, self.noise = factors, noise
        self.rng = np.random.default_rng(0)
        self.now, self.started, self.stopped = 0.0, 0, 0
        self.slices = 0
        self.order: list[tuple[str, str]] = []
        self.measured: list[tuple[str, ...]] = []
        self.canaries = itertools.count()
        self.slow_canaries: dict[int, Reading] = {}

    def clock(self):
        return self.now

    def canary(self):
        self.now += CANARY_S
        return self.slow_canaries.get(next(self.canaries), Reading(0.010, 1.0))

    def start(self, names):
        self.now += ROUND_S
        self.started += 1
        self.measured.append(tuple(names))
        noise = np.exp(self.rng.normal(0, self.noise, (2, len(names))))
        self.process = {side: dict(zip(names, row, strict=True)) for side, row in zip((BASE, HEAD), noise, strict=True)}

    def run(self, side, name):
        self.order.append((side, name))
        slower = 1.0 if self.slices // 2 % 3 else 2.0  # a phase of the machine, which neighbours share
        self.slices += 1
        return (self.factors[name] if side == HEAD else 1.0) * self.process[side][name] * slower

    def stop(self):
        self.stopped += 1


def session(machine, budget_s=1e6, seed=0, **of_session):
    procedure = Procedure(tuple(machine.factors), swap_tables(seed))
    return Session(procedure, machine, machine.canary, seed, budget_s, machine.clock, **of_session)


def test_a_regression_and_none_on_a_quiet_machine():
    machine = Machine({"slow": 1.15, "same": 1.0})
    outcome = session(machine).run()
    slow, same = outcome.findings
    assert (slow.verdict, same.verdict) == (REGRESSED, OK)
    assert slow.interval
    assert same.interval
    assert slow.interval.lower > 0.03
    assert slow.interval.lower < 0.15 < slow.interval.upper
    assert same.interval.lower < 0 < same.interval.upper < 0.10
    assert (outcome.pairs, outcome.redone) == (12, 0)
    assert machine.started == 12 * ROUNDS
    assert machine.stopped == 1


def test_orders_are_random_balanced_in_blocks_of_two_and_the_seeds():
    orders = []
    for seed in (1, 1, 2):
        machine = Machine({"same": 1.0})
        session(machine, seed=seed).run()
        sides = [side for side, _ in machine.order]
        assert all(set(turn) == {BASE, HEAD} for turn in zip(sides[::2], sides[1::2], strict=True))
        orders.append(sides[::2])
    assert orders[0] == orders[1] != orders[2]
    assert len(orders[0]) == 12 * ROUNDS * SLICES
    assert all(set(block) == {BASE, HEAD} for block in zip(orders[0][::2], orders[0][1::2], strict=True))
    assert {BASE, HEAD} == set(orders[0][::2])


def test_benchmarks_and_sides_take_turns():
    """So that a phase of the machine, however it falls, is seen by all."""
    machine = Machine({"a": 1.0, "b": 1.0})
    session(machine).run()
    for i in range(0, 4 * SLICES, 4):
        (one, a), (other, also_a), (third, b), (fourth, also_b) = machine.order[i : i + 4]
        assert (a, also_a, b, also_b) == ("a", "a", "b", "b")
        assert (one, other) == (third, fourth)


def test_a_round_says_how_much_slower_head_is_in_neighbouring_slices():
    phases = np.array([1.0, 2.0, 1.0, 2.0, 2.0])
    times = RoundTimes.of(phases * [1, 1, 1, 1, 5], phases * [1.1, 1.1, 1.1, 7, 1.1])
    assert times == pytest.approx((2.0, 2.2, np.log(1.1)))


def test_a_decided_benchmark_is_measured_no_longer():
    machine = Machine({"same": 1.0, "between": 1.065}, noise=0.06)
    session(machine).run()
    assert ("between",) in machine.measured
    assert machine.measured[: 12 * ROUNDS] == [("same", "between")] * 12 * ROUNDS


@pytest.mark.parametrize("reading", [Reading(0.0111, 1.0), Reading(0.010, 1.2)], ids=["slow", "waited for a core"])
def test_a_round_is_redone_if_all_its_canaries_are_disturbed(reading):
    machine = Machine({"same": 1.0})
    for i in range(CANARIES):
        machine.slow_canaries[FIRST_READINGS + i] = reading
    outcome = session(machine).run()
    assert (outcome.pairs, outcome.redone) == (12, 1)
    first, again = machine.order[: 2 * SLICES], machine.order[2 * SLICES : 4 * SLICES]
    assert first == again  # in the same order: the guard does not unbalance the session
    assert outcome.findings[0].verdict == OK


def test_a_disturbance_that_does_not_last_does_not_matter():
    machine = Machine({"same": 1.0})
    for i in range(CANARIES - 1):
        machine.slow_canaries[FIRST_READINGS + i] = Reading(0.020, 1.0)
    assert session(machine).run().redone == 0


def test_rounds_that_only_later_turn_out_to_be_disturbed_are_redone():
    """The machine was busy at the start, so that its slow canaries were all there was to compare with."""
    machine = Machine({"same": 1.0})
    for i in range(FIRST_READINGS + CANARIES * ROUNDS):
        machine.slow_canaries[i] = Reading(0.015, 1.0)
    outcome = session(machine).run()
    assert outcome.redone == ROUNDS
    assert outcome.findings[0].verdict == OK


def test_a_canary_computes(monkeypatch):
    products = []
    multiply = np.matmul
    monkeypatch.setattr(guard.np, "matmul", lambda *args, **options: products.append(multiply(*args, **options)))
    reading = guard.canary()
    assert len(products) == guard.PARTS * guard.PRODUCTS
    assert reading.seconds > 0
    assert reading.waited > 0


def test_the_guard_never_sees_the_times():
    quiet, noisy = Machine({"a": 1.0}), Machine({"a": 1.0}, noise=0.5)
    for machine in (quiet, noisy):
        assert session(machine).run().redone == 0
    assert disturbed([Reading(1.09, 1.09)], [Reading(1.0, 1.0)] * 4) is False


@pytest.mark.parametrize("waited", [1.0, 1.8], ids=["canaries vary", "canaries wait"])
def test_a_machine_under_full_load_is_inconclusive_and_never_ok(waited):
    machine = Machine({"same": 1.0, "slow": 1.15})
    rng = random.Random(0)
    for i in range(ALWAYS):
        if not i % CANARIES:
            slower = 1 if waited > 1 else rng.uniform(1, 5)
        machine.slow_canaries[i] = Reading(0.010 * slower, waited)
    outcome = session(machine).run()
    assert {finding.verdict for finding in outcome.findings} == {INCONCLUSIVE}
    assert all("too loaded" in str(finding.reason) for finding in outcome.findings)
    assert outcome.redone <= 3 * SPARE_REDOS
    assert machine.stopped == 1


@pytest.mark.parametrize(("budget_s", "pairs"), [(15.0, 1), (20.0, 1), (100.0, 8), (160.0, 13)])
def test_a_budget_that_ends_before_a_verdict_is_inconclusive(budget_s, pairs):
    """20 s end inside the second pair, whose rounds do not count."""
    machine = Machine({"between": 1.065}, noise=0.05)
    outcome = session(machine, budget_s).run()
    (finding,) = outcome.findings
    assert (finding.verdict, outcome.pairs) == (INCONCLUSIVE, pairs)
    assert f"budget of {budget_s:.0f} s is exhausted after {pairs} of" in str(finding.reason)
    assert float(str(finding.reason).rpartition("; try --budget ")[2].removesuffix("s")) >= 2 * budget_s
    assert len(finding.rounds) == min(pairs, 12) * ROUNDS  # those of the last look, if there was one
    assert machine.now <= budget_s
    assert (finding.interval is not None) == (pairs >= 12)
    assert "building" not in str(finding.reason)


def test_a_budget_that_building_has_taken_says_so():
    machine = Machine({"between": 1.065}, noise=0.05)
    (finding,) = session(machine, 15.0, started=machine.now - 12.0).run().findings
    assert "exhausted after 0 of 12 pairs, as building, first runs and counts took 12 s; try" in str(finding.reason)


def test_the_budget_runs_from_before_the_session():
    machine = Machine({"a": 1.0})
    machine.now = 50.0
    outcome = Session(Procedure(("a",), swap_tables(0)), machine, machine.canary, 0, 40.0, machine.clock, 0.0).run()
    assert outcome.pairs == 0
    assert outcome.findings[0].rounds == ()


def test_processes_are_stopped_whatever_happens():
    machine = Machine({})
    machine.factors["a"] = 1.0
    machine.run = lambda side, name: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        session(machine).run()
    assert machine.stopped == 1

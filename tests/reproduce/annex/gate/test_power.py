"""What the whole decision procedure does under noise, in seeded simulation: looks, randomisation test, margins, Holm.

The suite has the default one's size. The default run makes 100 trials of each case; `-m slow` makes 2000.
"""

from collections import Counter

import numpy as np
import pytest

from reproduce.annex.gate.procedure import INCONCLUSIVE, LOOKS, OK, REGRESSED, Procedure, overall, swap_tables
from tests.marks import by_default
from tests.reproduce.annex.gate.noise import HEAVY, MODERATE

SUITE = ("pipeline_step", "simulator")

TABLES = swap_tables(seed=0)


def simulate(noise, slowdown, trials, all_slow=False):
    """Shares of the suite's verdicts, under 'suite ...', and of its first benchmark's."""
    rng = np.random.default_rng([trials, round(slowdown * 100), round(noise.body * 100)])
    data = [
        noise.differences(trials, LOOKS[-1].pairs, slowdown if all_slow or not i else 0.0, rng)
        for i in range(len(SUITE))
    ]
    counts = Counter()
    for trial in range(trials):
        procedure = Procedure(SUITE, TABLES)
        while procedure.next_look:
            procedure.look({name: data[i][trial] for i, name in enumerate(SUITE)})
        verdicts = [procedure.verdicts.get(name, INCONCLUSIVE) for name in SUITE]
        counts.update([verdicts[0], f"suite {overall(verdicts)}", f"any {OK}" if OK in verdicts else "none"])
    return Counter({name: count / trials for name, count in counts.items()})


@pytest.mark.parametrize("noise", [MODERATE, HEAVY])
def test_noise_is_anchored_at_what_single_runs_do(noise):
    differences = noise.differences(50_000, 1, 0.0, np.random.default_rng(0), rounds=1)
    assert np.mean(differences > np.log(1.10)) == pytest.approx(noise.single_run_false_alarms, abs=0.02)


@pytest.mark.parametrize("trials", [100, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slowdown", by_default([0.0, 0.03, 0.10], 0.0))
@pytest.mark.parametrize("noise", [MODERATE, HEAVY], ids=["moderate", "heavy"])
def test_wrong_verdicts_are_rare_and_a_quiet_change_is_told(noise, slowdown, trials):
    counts = simulate(noise, slowdown, trials, all_slow=True)
    if slowdown <= 0.03:
        assert counts[f"suite {REGRESSED}"] <= 0.01
    elif slowdown == 0.10:
        assert counts[f"any {OK}"] <= 0.01
    if (noise, slowdown) == (MODERATE, 0.0):
        assert counts[f"suite {INCONCLUSIVE}"] <= 0.05


@pytest.mark.parametrize("trials", [100, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("noise", "power"), by_default([(MODERATE, 0.95), (HEAVY, 0.90)], (MODERATE, 0.95)), ids=["moderate", "heavy"]
)
def test_a_regression_of_one_benchmark_is_found(noise, power, trials):
    assert simulate(noise, 0.15, trials)[REGRESSED] >= power

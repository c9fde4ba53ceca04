"""Every simulated claim's verdict is taken back just inside the margin of what it rests on, and stands just outside.

The edges are those of the tolerances (`edges.py`): x is the quantity that a clause is about, as the metrics of
the points have it. All margins are 1% here, so that a bound 0.9% away is inside, and one 1.1% away outside.
"""

from math import isclose
from types import SimpleNamespace

import pytest

from reproduce.experiment import alternatives, catalog, judging
from reproduce.experiment.alternatives import with_margins
from reproduce.experiment.judging import judge
from reproduce.experiment.margins import Margin, Margins
from reproduce.experiment.quantities import COUNTED, RANGED, made_of, names_of
from reproduce.experiment.results import Results
from tests.reproduce.tolerances.edges import blanks
from tests.reproduce.tolerances.test_tolerances import edges_of

INSIDE, OUTSIDE = 0.9, 1.1  # of the margin
# Claims that compare more than two numbers: of four series two may be off at once, and the nearest bound is another's.
SEVERAL = {"communication_intensive", "takeaway_2", "data_parallelism_costs_little", "shares_of_peak_52_and_44"}
LOOKS = 6  # between here and a margin away, for another bound of the claim
GPU = SimpleNamespace(usable_memory=1e30)  # whether a point fits is another clause


def margins(share):
    one = Margin(1 + share, 0.9, 100, 0.9, "a test")
    ranged = {name: {"value": 1 + share, "ratio": 1 + share} for name in names_of(*RANGED)}
    return Margins(one, one, one, one, ranged=ranged)


def moved_between(one, other):
    """The metrics that differ between two layouts of the same points: name, and both values."""
    for a, b in zip(one, other, strict=True):
        for name in a.metrics.keys() & b.metrics.keys():
            values = a.metrics[name].value, b.metrics[name].value
            if values[0] != values[1]:
                yield name, *values


def kinds_of(edge, points):
    """Of which kinds the numbers are that an edge is about."""
    moved = moved_between(edge.lay(points, edge.value, False), edge.lay(points, edge.value * 1.02, False))
    return {made.kind if (made := made_of(name)) else None for name, *_ in moved}


def is_about_a_margin(edge, points):
    """Whether x stands in the metrics as it is, or times a constant, and all of these have a margin of their own."""
    if edge.patch or edge.holds not in ("above", "below") or not edge.value:
        return False
    moved = list(moved_between(edge.lay(points, edge.value, False), edge.lay(points, edge.value * 1.02, False)))
    if not moved or kinds_of(edge, points) & {None, COUNTED}:
        return False
    if any(made.plus for name, *_ in moved if (made := made_of(name))):  # an overhead: 1 and x move together
        return False
    return all(before and isclose(after / before, 1.02, rel_tol=1e-9) for _, before, after in moved)


def verdict(claim, points, share):
    results = Results(tuple(points), "simulated")
    return judge(claim, results if share is None else with_margins(results, margins(share), lambda point: GPU)).verdict


def expected(claim, edge, points, x):
    """The plain verdict at x, if that is the verdict up to a margin away, whichever way; else 'inconclusive'."""
    just_beyond = ((INSIDE + 0.05) * sign for sign in (1, -1))  # the bound: inside of a narrow window
    factors = (1.01**share for share in (*just_beyond, *(place / LOOKS for place in range(-LOOKS, LOOKS + 1))))
    verdicts = {verdict(claim, edge.lay(points, x * factor, False), None) for factor in factors}
    return verdicts.pop() if len(verdicts) == 1 else "inconclusive"


def problems(artifact):
    """What is wrong, and at how many places the artifact's claims were judged."""
    points, found, judged = blanks(artifact.points()), [], 0
    edges = edges_of(artifact, points)
    for claim in artifact.claims:
        if claim.fidelity != "simulated" or claim.set_with:
            continue
        for edge in (edge for edge in edges.get(claim.id, ()) if is_about_a_margin(edge, points)):
            parts = [INSIDE] if claim.id in SEVERAL or kinds_of(edge, points) & set(RANGED) else [INSIDE, OUTSIDE]
            for part in (sign * part for part in parts for sign in (1, -1)):
                x = edge.value * 1.01**part
                right, said = expected(claim, edge, points, x), verdict(claim, edge.lay(points, x, False), 0.01)
                judged += 1
                if said != right:
                    found.append(f"{artifact.id}.{claim.id}, {edge.words!r} at {x!r}: {said}, should be {right}")
    return found, judged


# Of these no claim is decided by a margin alone: what the last two say also set the simulator's numbers.
WITHOUT = {"fig_scaling", "fig_schedules", "fig_microbatch_single_gpu", "table_zero3"}
SLOW = {"fig_schedule_zoo", "paper_claims", "zerobubble/table_4"}


@pytest.mark.parametrize(
    "id",
    [
        pytest.param(id, marks=[pytest.mark.slow] * (id in SLOW))
        for id in catalog.ids()
        if "simulated" in catalog.load(id).fidelities
    ],
)
def test_a_verdict_stands_just_outside_a_margin_and_not_inside(id, monkeypatch):
    monkeypatch.setattr(alternatives, "for_judging", lambda cluster: margins(0.01))
    monkeypatch.setattr("reproduce.experiment.margins._with_experts", lambda: 1.01)
    # How near the other verdict is does not matter here; a window between bounds is wider than a sixteenth of a margin.
    monkeypatch.setattr(judging, "STEPS", 16)
    monkeypatch.setattr(judging, "BISECTIONS", 0)
    found, judged = problems(catalog.load(id))
    assert found == []
    assert judged or id in WITHOUT

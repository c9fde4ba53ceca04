"""Figure 6: the pipeline bubble against the data-parallel size, by formula and by running the schedule."""

from collections.abc import Mapping
from typing import Any

from ptdp_core.formulas import bubble_fraction_data_parallel
from ptdp_core.schedules import bubble_fraction, build
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, argmax, numbers_of
from reproduce.experiment.sweep import Point, printed_points
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ID = "fig_bubble"
FORMULA, EXECUTED = "bubble_fraction", "executed_bubble_fraction"


def points() -> tuple[Point, ...]:
    """Every marker of the figure: four series of (n, b') over d."""
    return printed_points(ID, "n{n}_b{b_prime}_d{d}", "n={n}, b'={b_prime}", "d={d}", _parameters)


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    n, b_prime, d = row["n"], row["b_prime"], row["d"]
    return {"n": n, "b_prime": b_prime, "d": d, "t": 1, "p": n // d, "m": b_prime // d}


def derive(point: Point) -> dict[str, float]:
    """(n - d)/b' (Section 3.3.1), and the same from executing 1F1B with p = n/d and m = b'/d."""
    n, b_prime, d, p, m = (point.parameters[name] for name in ("n", "b_prime", "d", "p", "m"))
    executed = bubble_fraction(build("1f1b", p, m), 1, 2)
    return {
        FORMULA: bubble_fraction_data_parallel(n, d, b_prime),
        EXECUTED: float(executed),
    }


ARTIFACT = told(__name__, points=points, derive=derive, draw=line_plot)


@ARTIFACT.judge
def formula_is_the_schedule(results: Results) -> Judgement:
    differences = {
        point.key: abs(results.value(point.key, FORMULA) - results.value(point.key, EXECUTED))
        for point in results.points
    }
    worst = argmax(differences)
    text = (
        f"1F1B executed action by action with p=n/d, m=b'/d at {len(differences)} points; largest difference "
        f"from the formula {differences[worst]:.1e}"
    )
    equal = all(difference <= 1e-9 * results.value(key, FORMULA) for key, difference in differences.items())
    return holds_if(equal, text, numbers_of("derived", largest_difference=differences[worst]))


@ARTIFACT.judge
def larger_batch_smaller_bubble(results: Results) -> Judgement:
    bubbles: dict[tuple[int, int], dict[int, float]] = {}
    for point in results.points:
        n, d, b_prime = (point.parameters[name] for name in ("n", "d", "b_prime"))
        bubbles.setdefault((n, d), {})[b_prime] = results.value(point.key, EXECUTED)
    pairs = [(by[min(by)], by[max(by)]) for by in bubbles.values() if len(by) > 1 and by[min(by)] > 0]
    smaller = sum(large < small for small, large in pairs)
    text = f"smaller with the larger b' in {smaller} of {len(pairs)} cases of equal n and d with a bubble at all"
    return holds_if(bool(pairs) and smaller == len(pairs), text)

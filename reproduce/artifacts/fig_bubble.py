"""Figure 6: the pipeline bubble against the data-parallel size, by formula and by running the schedule."""

from benchmarks.records import Metric, Number
from ptdp_core.formulas import bubble_fraction_data_parallel
from ptdp_core.schedules import bubble_fraction, build
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.quantities import Quantity, XAxis
from reproduce.experiment.results import Judgement, Results, holds_if, strictly_decreasing
from reproduce.experiment.sweep import Point, Sweep
from reproduce.output.figures import line_plot

ID = "fig_bubble"
FORMULA, EXECUTED = "bubble_fraction", "executed_bubble_fraction"
TOLERANCE = 1e-12  # of the floating-point division; the execution itself is exact


def points() -> tuple[Point, ...]:
    """Every marker of the figure: four series of (n, b') over d."""
    return tuple(
        Point(
            key=f"n{n}_b{b_prime}_d{d}",
            series=f"n={n}, b'={b_prime}",
            label=f"d={d}",
            parameters={"n": n, "b_prime": b_prime, "d": d, "t": 1, "p": n // d, "m": b_prime // d},
            paper=published.paper_values(ID, row),
        )
        for row in published.rows(ID)
        for n, b_prime, d in [(row["n"], row["b_prime"], row["d"])]
    )


def derive(point: Point) -> dict[str, Metric]:
    """(n - d)/b' (Section 3.3.1), and the same from executing 1F1B with p = n/d and m = b'/d.

    Raises ValueError where p or m is not a whole number.
    """
    n, b_prime, d = (_whole(point, name) for name in ("n", "b_prime", "d"))
    if n % d or b_prime % d:
        raise ValueError(f"d={d} does not divide n={n} and b'={b_prime}; needs whole p = n/d and m = b'/d; try d=1")
    executed = bubble_fraction(build("1f1b", n // d, b_prime // d), 1, 2)
    return {
        FORMULA: Metric(bubble_fraction_data_parallel(n, d, b_prime), "1", "derived"),
        EXECUTED: Metric(float(executed), "1", "derived"),
    }


def _whole(point: Point, name: str) -> int:
    value = point.parameters[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} is not a positive whole number; needs {name} >= 1; try {name}=1")
    return value


ARTIFACT = Artifact(
    id="fig_bubble",
    label="Figure 6",
    section="3.3.1",
    title="Pipeline bubble versus data-parallel size",
    description=(
        "Fraction of time spent idling due to the pipeline flush against the data-parallel size d, for n GPUs "
        "and b' = B/b, without tensor parallelism: (n - d)/b', checked by executing the 1F1B schedule."
    ),
    quantities=(
        Quantity(FORMULA, "pipeline bubble size", "1", "", 1, 3, axis="Pipeline bubble size"),
        Quantity(EXECUTED, "executed 1F1B", "1", "", 1, 3),
    ),
    sweeps={"paper": Sweep(points)},
    columns={"d": "d", "p": "p", "m": "m"},
    x_axis=XAxis("d", "Data-parallel size (d)", scale="log2"),
    tolerance=0.03,
    derive=derive,
    draw=line_plot,
)


@ARTIFACT.claim(
    r"The pipeline bubble size is: $$\frac{p-1}{m} = \dfrac{n/d-1}{b'/d} = \dfrac{n-d}{b'}.$$",
    "Section 3.3.1",
    "the executed schedule's bubble equals the formula to 1e-12",
)
def formula_is_the_schedule(results: Results) -> Judgement:
    differences = {
        point.key: abs(results.value(point.key, FORMULA) - results.value(point.key, EXECUTED))
        for point in results.points
    }
    worst = max(differences, key=lambda key: differences[key])
    text = (
        f"1F1B executed action by action with p=n/d, m=b'/d at {len(differences)} points; largest difference "
        f"from the formula {differences[worst]:.1e}"
    )
    return holds_if(
        differences[worst] <= TOLERANCE, text, {"largest_difference": Number(differences[worst], "1", "derived")}
    )


def _series(results: Results) -> list[str]:
    return list(dict.fromkeys(point.series for point in results.points))


@ARTIFACT.claim(
    "As $d$ becomes larger, $n-d$ becomes smaller, and thus the pipeline bubble becomes smaller.",
    "Section 3.3.1",
    "falls from each d to the next, in every series",
)
def larger_d_smaller_bubble(results: Results) -> Judgement:
    rising = [
        name for name in _series(results) if not strictly_decreasing(list(results.series(name, EXECUTED, "d").values()))
    ]
    text = "the executed bubble falls from each d to the next in every series"
    return holds_if(not rising, f"the executed bubble does not fall in {'; '.join(rising)}" if rising else text)


@ARTIFACT.claim(
    "For a given parallel configuration, as the batch size $B$ increases, $b'=B/b$ increases, $(n-d)/b'$ "
    "decreases, consequently increasing throughput.",
    "Section 3.3.1 (the bubble)",
    "at equal n and d < n, the series with the larger b' has the smaller bubble",
)
def larger_batch_smaller_bubble(results: Results) -> Judgement:
    bubbles: dict[tuple[object, object], dict[int, float]] = {}
    for point in results.points:
        where = point.parameters["n"], point.parameters["d"]
        b_prime = point.parameters["b_prime"]
        assert isinstance(b_prime, int)
        bubbles.setdefault(where, {})[b_prime] = results.value(point.key, EXECUTED)
    pairs = [(by[min(by)], by[max(by)]) for by in bubbles.values() if len(by) > 1 and by[min(by)] > 0]
    smaller = sum(large < small for small, large in pairs)
    text = f"smaller with the larger b' in {smaller} of {len(pairs)} cases of equal n and d with a bubble at all"
    return holds_if(bool(pairs) and smaller == len(pairs), text)

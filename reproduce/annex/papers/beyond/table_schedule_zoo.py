"""Beyond the paper: every pipeline schedule at equal times of F, I and W, against what its authors publish."""

from fractions import Fraction

from ptdp_core.schedules import build, definition, names, summary
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from results.records import Metric, Record

P, M = 12, 24  # Figure 12's pipeline, and the fewest microbatches for which all schedules exist
RELATIVE = ("relative_bubble", "relative_memory", "relative_messages")
PUBLISHED = ("published_bubble", "published_memory", "published_messages")


def points() -> tuple[Point, ...]:
    """Every schedule with the fewest model chunks that it has."""
    return tuple(
        Point(name, "", definition(name).title, {"schedule": name, "p": P, "m": M, "v": definition(name).chunks[0]})
        for name in names()
    )


def derive(point: Point) -> dict[str, float | Metric]:
    """The executed table with t_f = 1, t_b = 2, t_w = 1, over 1F1B's; and what is published, where it is.

    `relative_bubble` leaves out what a flush makes ranks wait before their first and after their last pass.
    """
    name, (p, m, v) = point.parameters["schedule"], (point.parameters[size] for size in "pmv")
    ours, flush = summary(build(name, p, m, v)), summary(build("1f1b", p, m))
    values = {
        "bubble_fraction": ours.bubble,
        "own_bubble_fraction": ours.own_bubble,
        "relative_bubble": ours.own_bubble / flush.bubble,
        "relative_memory": ours.peak_stash / flush.peak_stash,
        "relative_messages": Fraction(ours.messages, flush.messages),
    }
    published = zip(PUBLISHED, definition(name).published or (), strict=False)
    metrics: dict[str, float | Metric] = {metric: float(value) for metric, value in values.items()}
    return metrics | {metric: Metric(float(Fraction(value)), "1", "paper") for metric, value in published}


def notes(results: Results) -> tuple[str, ...]:
    """What the columns mean, and where a schedule's execution is not what its authors' formula says."""
    findings = (f"{definition(name).title}: {definition(name).finding}" for name in names())
    return (
        f"p={P}, m={M}, F, I and W take equally long. Bubbles are over the ideal time; the relative one, over 1F1B's, "
        "is between a rank's own first and last pass, as the zero-bubble papers count: it leaves out the waiting for "
        "the flush that strict optimizer semantics need. Published: sail-sg/zero-bubble's table.",
        "Not here: Chimera and DualPipe run two pipelines in opposite directions, with two copies of the weights.",
        *(finding for finding in findings if not finding.endswith(": ")),
    )


def merit(record: Record) -> str:
    """How far the executed bubbles are from the published ones, at most."""
    results = Results.of_record(record)
    published = {point.key: metric.value for point in record.points if (metric := point.metrics.get(PUBLISHED[0]))}
    apart = [abs(results.value(key, RELATIVE[0]) - (value or 0)) for key, value in published.items()]
    return f"bubbles of {len(apart)} schedules within {max(apart):.2f} of the published" if apart else ""


ARTIFACT = told(__name__, points=points, derive=derive, notes=notes, merit=merit)


@ARTIFACT.judge
def published_ratios_hold(results: Results) -> Judgement:
    slack = (1 / (3 * (P - 1)), 4 / (3 * P), 0.0)
    compared = [point for point in results.points if PUBLISHED[0] in point.metrics]
    far = [
        f"{point.label}: {ours} {results.value(point.key, ours):.2f}, published {results.value(point.key, said):.2f}"
        for point in compared
        for ours, said, most in zip(RELATIVE, PUBLISHED, slack, strict=True)
        if abs(results.value(point.key, ours) - results.value(point.key, said)) > most + 1e-12
    ]
    return holds_if(not far, "; ".join(far) or f"{len(compared)} schedules, three numbers each")


@ARTIFACT.judge
def a_flush_leaves_a_bubble(results: Results) -> Judgement:
    text, holds = [], True
    for name in ("zb-h2", "zb-v"):
        alone, flush = (results.value(name, metric) for metric in ("own_bubble_fraction", "bubble_fraction"))
        holds &= alone == 0 and abs(flush - (P - 1) / (3 * M * definition(name).chunks[0])) < 1e-12
        text.append(f"{definition(name).title} {alone:.1%} and {flush:.1%}")
    return holds_if(holds, f"without and with the flush: {', '.join(text)}")


@ARTIFACT.judge
def dualpipev_is_better_than_its_formula(results: Results) -> Judgement:
    passes = results.value("dualpipev", "bubble_fraction") * 3 * M * 2
    text = f"{passes:g} passes of a chunk, {(P - 1) * (1 + 2 * 2 - 3)} by the formula"
    return holds_if(abs(passes - (P - 1)) < 1e-9, text)

"""Figure 4: the default 1F1B schedule and the interleaved one with 2 chunks per device, on one time scale."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from ptdp_core.formulas import bubble_fraction as ideal_bubble
from ptdp_core.schedules import Action, Schedule, looped
from ptdp_core.schedules import peak_stash as stashes_of
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import Results, argmax, listed, numbers_of
from reproduce.experiment.sweep import LAPTOP, Point
from reproduce.experiment.told import told
from reproduce.output.timeline import derive, from_schedule
from reproduce.papers.shared import executed_timelines
from reproduce.papers.shared.executed_timelines import FIGURE, QUANTITIES
from results.records import PaperValue

P, M, V = 4, 8, 2
COMPARISON = "for comparison"
# (p, m): the figure's, one with m >> p, and deeper pipelines up to that of Figure 12.
SIZES = ((P, M), (4, 64), (8, 16), (12, 24))


FIGURES = (("1f1b", P, M, 1), ("interleaved", P, M, V))
EXECUTED = (("gpipe", P, M, 1), ("interleaved", P, M, 4), ("1f1b", 8, 16, 1))  # beside them


def _key(schedule: str, p: int, m: int, v: int = 1) -> str:
    return f"{schedule}-p{p}-m{m}-v{v}"


DRAWN = [_key(*run) for run in FIGURES]


def _point(series: str, schedule: str, p: int, m: int, v: int) -> Point:
    parameters = {"schedule": schedule, "p": p, "m": m, "v": v, "t_f": 1, "t_b": 2}
    # What the paper's formula says there, (p-1)/(vm) (Sections 2.2.1 and 2.2.2).
    paper = {"bubble_fraction": PaperValue((p - 1) / (v * m), "1", "text")}
    chunks = f", v={v}" if v > 1 else ""
    return Point(_key(schedule, p, m, v), series, f"{schedule}, p={p}, m={m}{chunks}", parameters, paper)


def points() -> tuple[Point, ...]:
    """The figure's two schedules, and what the claims compare them with."""
    schedules = (("gpipe", 1), ("1f1b", 1), ("interleaved", V))
    more = [*EXECUTED[:2], *((name, p, m, v) for p, m in SIZES[1:] for name, v in schedules)]
    return (*(_point(FIGURE, *run) for run in FIGURES), *(_point(COMPARISON, *run) for run in more))


def notes(results: Results) -> tuple[str, ...]:
    """What interleaving costs in memory; at scale 'laptop' how far the bubbles are from the formula."""
    if results.scale == LAPTOP:
        return executed_timelines.notes(results)
    default, new = (results.value(key, "peak_stash") for key in DRAWN)
    return (
        f"Peak stash at p={P}, m={M}: 1F1B {default:g} microbatches, interleaved with v={V} {new:g} "
        f"(p(1 + (p-1)/(pv)); {new / default - 1:.0%} more).",
    )


ARTIFACT = told(
    __name__,
    points=points,
    sweeps={
        "laptop": executed_timelines.sweep(
            "1F1B and the interleaved schedule with 2 model chunks",
            [(_key(*run), FIGURE if run in FIGURES else COMPARISON, *run) for run in (*FIGURES, *EXECUTED)],
        )
    },
    quantities=(*QUANTITIES, Quantity("neighbour_messages", "between neighbours", "count", "", digits=0)),
    derive=derive,
    emulated=executed_timelines.metrics,
    timelines=executed_timelines.recorded,
    draw=partial(executed_timelines.draw_figure, after_flush=P),
    notes=notes,
    files=executed_timelines.figure_files,
)


@ARTIFACT.judge
def one_f_one_b_bubble(results: Results) -> Judgement:
    times = {size: [results.value(_key(name, *size), "makespan") for name in ("gpipe", "1f1b")] for size in SIZES}
    stashes = {size: results.value(_key("1f1b", *size), "peak_stash") for size in SIZES}
    same = all(gpipe == one_f_one_b for gpipe, one_f_one_b in times.values())
    few = all(stash <= p for (p, _), stash in stashes.items())
    shown = ", ".join(f"{stash:g} (p={p}, m={m})" for (p, m), stash in stashes.items())
    return holds_if(
        same and few,
        f"GPipe and 1F1B take {times[P, M][0]:g} and {times[P, M][1]:g} t_f at p={P}, m={M}"
        f"{', equally long at all sizes' if same else ''}; 1F1B has at most {shown} forward passes outstanding",
        numbers_of("derived", gpipe_makespan=times[P, M][0], one_f_one_b_makespan=times[P, M][1]),
    )


@ARTIFACT.judge
def one_f_one_b_stash(results: Results) -> Judgement:
    stashes = {size: [results.value(_key(name, *size), "peak_stash") for name in ("1f1b", "gpipe")] for size in SIZES}
    shown = ", ".join(
        f"{one_f_one_b:g} and {gpipe:g} (p={p}, m={m})" for (p, m), (one_f_one_b, gpipe) in stashes.items()
    )
    return holds_if(
        all(one_f_one_b <= p and gpipe == m for (p, m), (one_f_one_b, gpipe) in stashes.items()),
        f"microbatches stashed at most, 1F1B and GPipe: {shown}",
        numbers_of(
            "derived",
            "count",
            **{
                f"{name}_stash_m{m}": value
                for (_, m), both in stashes.items()
                for name, value in zip(("one_f_one_b", "gpipe"), both, strict=True)
            },
        ),
    )


def _pairs(results: Results, metric: str) -> Iterator[tuple[int, int, int, float, float]]:
    """p, m, v, and the metric of 1F1B and of the interleaved schedule, for each interleaved point."""
    for point in results.points:
        p, m, v = (point.parameters[name] for name in ("p", "m", "v"))
        if point.parameters["schedule"] == "interleaved":
            yield p, m, v, results.value(_key("1f1b", p, m), metric), results.value(point.key, metric)


@ARTIFACT.judge
def interleaved_bubble_by_v(results: Results) -> Judgement:
    ratios = {(p, m, v): old / new for p, m, v, old, new in _pairs(results, "bubble_fraction")}
    shown = ", ".join(f"{ratio:g} (p={p}, m={m}, v={v})" for (p, m, v), ratio in ratios.items())
    return holds_if(
        all(abs(ratio - v) < 1e-9 for (_, _, v), ratio in ratios.items()),
        f"the bubble of 1F1B over that of the interleaved schedule: {shown}",
        numbers_of("derived", reduction=ratios[P, M, V]),
    )


@ARTIFACT.judge
def interleaved_bubble_time(results: Results) -> Judgement:
    off = {}
    for point in results.points:
        p, m, v = (point.parameters[name] for name in ("p", "m", "v"))
        if point.parameters["schedule"] == "interleaved":
            both = point.parameters["t_f"] + point.parameters["t_b"]
            time, fraction = (
                results.value(point.key, "makespan") - m * both,
                results.value(point.key, "bubble_fraction"),
            )
            off[point.label] = max(abs(time / ((p - 1) * both / v) - 1), abs(fraction / ((p - 1) / (v * m)) - 1))
    worst = argmax(off)
    text = (
        f"time and fraction of the executed bubble at {len(off)} sizes: largest difference {off[worst]:.1e} ({worst})"
    )
    return holds_if(off[worst] <= 1e-9, text, numbers_of("derived", largest_difference=off[worst]))


@ARTIFACT.judge
def all_forward_interleaved_stash(results: Results) -> Judgement:
    stashes = {m: max(stashes_of(_all_forward(P, m, V))) / V for m in (8, 16, 32, 64)}
    default = results.value(DRAWN[1], "peak_stash")
    text = f"microbatches stashed at most: {listed(stashes, '{:g}')}; interleaved 1F1B holds {default:g} at m={M}"
    return holds_if(
        all(stash == m for m, stash in stashes.items()), text, numbers_of("derived", "count", stash_m=stashes)
    )


@ARTIFACT.judge
def interleaved_communication_by_v(results: Results) -> Judgement:
    neighbours = {(p, m, v): new / old for p, m, v, old, new in _pairs(results, "neighbour_messages")}
    exact = all(abs(ratio - v) < 1e-9 for (_, _, v), ratio in neighbours.items())
    text = f"between neighbouring devices {'exactly v' if exact else 'not v'} times as many messages as 1F1B"
    return holds_if(exact, text, numbers_of("derived", neighbour_ratio=neighbours[P, M, V]))


@ARTIFACT.judge
def interleaved_communication_in_total(results: Results) -> Judgement:
    ratios = {(p, m, v): new / old for p, m, v, old, new in _pairs(results, "messages")}
    off = {size: ratio / size[-1] - 1 for size, ratio in ratios.items()}
    formula = all(abs(ratio - (p * v - 1) / (p - 1)) < 1e-9 for (p, _, v), ratio in ratios.items())
    sizes = dict.fromkeys(f"{ratio:.3f} (p={p}, v={v})" for (p, _, v), ratio in ratios.items())
    worst = argmax(off, abs)
    text = (
        "the interleaved schedule also sends from the last device back to the first, which 1F1B never does: in total "
        f"{'(pv-1)/(p-1)' if formula else 'not (pv-1)/(p-1)'} times as many messages, {', '.join(sizes)}"
    )
    numbers = numbers_of("derived", total_ratio=ratios[P, M, V], largest_difference=off[worst])
    return holds_if(abs(off[worst]) <= 1e-9, text, numbers)


def _in_groups(name: str, p: int, m: int, v: int, warmup: Callable[[int], int]) -> Schedule:
    """The interleaved order with this warm-up of a rank, and perhaps a last group of fewer than p microbatches."""
    groups = [range(first, min(first + p, m)) for first in range(0, m, p)]
    ranks = []
    for r in range(p):
        forwards = [Action("F", c * p + r, i) for group in groups for c in range(v) for i in group]
        backwards = [Action("B", c * p + r, i) for group in groups for c in reversed(range(v)) for i in group]
        first = min(warmup(r), m * v)
        steady = [action for pair in zip(forwards[first:], backwards[: m * v - first], strict=True) for action in pair]
        ranks.append((*forwards[:first], *steady, *backwards[m * v - first :]))
    return Schedule(name, looped(p, v), m, tuple(ranks))


def _uneven(p: int, m: int, v: int) -> Schedule:
    """The warm-up of the interleaved order (`schedules.zoo.interleaved`)."""
    return _in_groups("uneven", p, m, v, lambda rank: 2 * (p - rank - 1) + (v - 1) * p)


def _all_forward(p: int, m: int, v: int) -> Schedule:
    """All forward passes, and then all backward passes."""
    return _in_groups("all_forward", p, m, v, lambda rank: m * v)


def _other_m() -> tuple[int, list[float]]:
    """With m from p+1 to 2p-1: how often the order cannot run, and in the other cases its bubble over (p-1)/(vm)."""
    stuck, excess = 0, []
    for p, v in ((4, 2), (4, 4), (8, 2)):
        for m in range(p + 1, 2 * p):
            try:
                bubble = Fraction(from_schedule(_uneven(p, m, v)).bubble)
            except ValueError:  # the order cannot run
                stuck += 1
            else:
                excess.append(float(bubble) / ideal_bubble(p, m, v))
    return stuck, excess


CASES = "with a last group of fewer than p microbatches (p=4, v=2 and 4; p=8, v=2; m from p+1 to 2p-1)"


@ARTIFACT.judge
def interleaved_multiple_of_p(results: Results) -> Judgement:
    stuck, excess = _other_m()
    text = f"{CASES} the order cannot run in {stuck} of {stuck + len(excess)} cases"
    return holds_if(not excess, text, numbers_of("derived", "count", runs=len(excess), cannot_run=stuck))


@ARTIFACT.judge
def interleaved_other_m_costs(results: Results) -> Judgement:
    stuck, excess = _other_m()
    low, high = (min(excess), max(excess)) if excess else (1.0, 1.0)
    text = (
        f"{CASES} the order cannot run in {stuck} of {stuck + len(excess)} cases; in the others its bubble is "
        f"{low:.2f} to {high:.2f} times (p-1)/(vm)"
    )
    holds = all(ratio > 1 + 1e-9 for ratio in excess)
    return holds_if(holds, text, numbers_of("derived", least_excess=low, largest_excess=high))

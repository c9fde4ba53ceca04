"""The figures of `reproduce accuracy`: predicted against published, and how far each number moves the score."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.records import Record
from reproduce.analysis.scoring.accuracy import Assessment
from reproduce.analysis.scoring.sensitivity import DROPPED, HIGH, LOW, Move
from reproduce.output.theme import MARKERS, PALETTE, add_origin, figure_files, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 0.05
BARS = 14
# Two colours that differ under every colour deficiency, and black for what is dropped.
LOOKS = {LOW: "#0072b2", HIGH: "#e69f00"}
# Eight colours and nine markers, used in turn: no two of 72 groups look alike.
COLOURS = (*PALETTE, "#000000", "#999999")
GROUP_MARKERS = (*MARKERS, "X", "<", "*")


def render(assessment: Assessment, record: Record) -> dict[str, bytes]:
    """figure.pdf, figure.png (predicted against published), sensitivity.pdf, sensitivity.png; byte-stable."""
    with style():
        drawn = {"figure": scatter(assessment, record), "sensitivity": bars(assessment)}
        return {
            file: data
            for name, figure in drawn.items()
            for file, data in figure_files(figure, f"accuracy: {name}", name).items()
        }


def scatter(assessment: Assessment, record: Record) -> "Figure":
    """Predicted against published throughput, a colour and marker per artifact, with the diagonal and the 5% band."""
    figure = new_figure(height=3.5)
    axes = figure.subplots()
    largest, others = 0.0, 0
    drawn = 0
    for group in assessment.groups:
        pairs = [p.pair for p in group.predicted if p.counted and p.pair is not None and p.published.is_throughput]
        others += sum(p.counted and p.pair is not None and not p.published.is_throughput for p in group.predicted)
        if not pairs:
            continue
        color, marker = COLOURS[drawn % len(COLOURS)], GROUP_MARKERS[drawn % len(GROUP_MARKERS)]
        drawn += 1
        xs, ys = [pair.paper / 1e12 for pair in pairs], [pair.ours / 1e12 for pair in pairs]
        look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 3.6, "alpha": 0.85}
        axes.plot(xs, ys, linestyle="", markeredgewidth=0, label=group.artifact.label, zorder=3, **look)
        largest = max(largest, *xs, *ys)
    _diagonal(axes, largest * 1.05)
    axes.set_xlabel("Published teraFLOP/s per GPU")
    axes.set_ylabel("Simulated teraFLOP/s per GPU")
    axes.set_aspect("equal")
    figure.legend(loc="outside upper center", ncols=3, columnspacing=1.0, handletextpad=0.3)
    add_origin(figure, _origin(assessment, record, others))
    return figure


def _diagonal(axes: "Axes", end: float) -> None:
    axes.fill_between([0, end], [0, end * (1 - BAND)], [0, end * (1 + BAND)], color="#dddddd", linewidth=0, zorder=1)
    axes.plot([0, end], [0, end], color="#777777", linewidth=0.7, zorder=2)
    axes.annotate(f"±{BAND:.0%}", (end * 0.17, end * 0.17), (4, -9), textcoords="offset points", color="#555555")
    axes.set_xlim(0, end)
    axes.set_ylim(0, end)
    ticks = range(0, int(end) + 1, 50)
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)


def _origin(assessment: Assessment, record: Record, others: int) -> list[str]:
    score = assessment.overall.score
    lines = [f"{record.fidelity}: ptdp on {assessment.cluster.name.capitalize()} model"]
    if score:
        lines.append(f"all {score.n} published values: mean error {score.mean:.1%}, worst {score.worst:+.1%}")
    if others:
        lines.append(f"({others} of them are no throughputs per GPU, and not drawn)")
    return lines


def bars(assessment: Assessment) -> "Figure":
    """For the numbers and mechanisms that matter most: the overall mean error at low, at high, and dropped."""
    base = assessment.overall.score.mean if assessment.overall.score else 0.0
    ordered = by_effect(assessment)[:BARS]
    figure = new_figure(height=1.1 + 0.19 * len(ordered))
    axes = figure.subplots()
    limit = _limit(base, [move for moves in ordered for move in moves if move.way != DROPPED])
    for place, moves in enumerate(ordered):
        for move in moves:
            if move.mean is not None:
                _bar(axes, move, place, base, limit)
    axes.axvline(100 * base, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(ordered)), labels=[moves[0].name for moves in ordered])
    axes.set_ylim(len(ordered) - 0.4, -0.6)
    axes.set_xlim(0, limit)
    axes.grid(False, axis="y")
    axes.set_xlabel("Mean error (%)")
    _legend(figure, base)
    left = len(by_effect(assessment)) - len(ordered)
    note = [
        f"simulated: ptdp on {assessment.cluster.name.capitalize()} model; mean over all published values",
        "bars: one number at an end of its range; x: the effect left out",
    ]
    if any(move.mean is not None and 100 * move.mean > limit for moves in ordered for move in moves):
        note.append("arrow: the effect left out, off the chart")
    if left > 0:
        note.append(f"the {left} numbers and effects that are not shown matter less")
    add_origin(figure, note)
    return figure


def by_effect(assessment: Assessment) -> list[list[Move]]:
    """The moves of each number or mechanism together, the most effective first."""
    names: dict[str, list[Move]] = {}
    for move in assessment.moves:
        names.setdefault(move.name, []).append(move)
    return sorted(names.values(), key=lambda moves: max(abs(move.change) for move in moves), reverse=True)


def _limit(base: float, moves: Sequence[Move]) -> float:
    """Where the axis ends, in percent: past every bar, so that a dropped mechanism far out is marked at the edge."""
    return 115 * max([2 * base, *(move.mean for move in moves if move.mean is not None)])


def _bar(axes: "Axes", move: Move, place: int, base: float, limit: float) -> None:
    assert move.mean is not None
    end = 100 * move.mean
    if move.way == DROPPED:
        outside = end > limit
        marker = ">" if outside else "x"
        axes.plot(
            min(end, limit * 0.985), place, marker=marker, color="#000000", markersize=3.5, clip_on=False, zorder=4
        )
        if outside:
            axes.annotate(f"{end:.0f}%", (limit, place), (-7, 0), textcoords="offset points", ha="right", va="center")
        return
    offset = -0.19 if move.way == LOW else 0.19
    axes.barh(place + offset, end - 100 * base, 0.36, left=100 * base, color=LOOKS[move.way], linewidth=0, zorder=3)


def _legend(figure: "Figure", base: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=LOOKS[LOW], linewidth=0, label="low end"),
        Patch(color=LOOKS[HIGH], linewidth=0, label="high end"),
        Line2D([], [], color="#000000", marker="x", markersize=3.5, linestyle="", label="without it"),
        Line2D([], [], color="#333333", linewidth=0.8, label=f"as set: {base:.1%}"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=0.8, handlelength=1.0)

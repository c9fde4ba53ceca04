"""Beyond the paper: throughput and memory with and without sequence parallelism, over t, GPT-3 175B on 64 GPUs.

Sequence parallelism is that of Korthikanti et al. (2022), "Reducing Activation Recomputation in Large Transformer
Models"; nothing that they measured with it is used or compared with here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptdp_core.simulator import Cluster, Estimate
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import MissingResultError, Results, listed
from reproduce.experiment.sweep import Level, Point, Sweep, levels
from reproduce.experiment.told import told
from reproduce.output import colours, theme
from reproduce.output.chart import chart_data, interval_label
from reproduce.output.figures import finish, label_axes, series_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.records import Record

GPUS, SIZES = 64, (2, 4, 8, 16)
RECOMPUTE = {"full": "Full recomputation", "selective": "Selective recomputation", "none": "No recomputation"}
APART = 2.5  # points between the series
USABLE = "usable_memory"
TENSOR_TRAFFIC = q.Quantity("tensor_traffic", "tensor-parallel bytes sent", "B", "GB", 1e9, 1)


def _series(recompute: str, on: bool) -> str:
    return RECOMPUTE[recompute] + ", sequence parallel" * on


def _levels(*recompute: str) -> tuple[Level, ...]:
    return tuple(
        Level(_series(name, on), f"{name}_{'on' if on else 'off'}", {"recompute": name, "sequence_parallel": on})
        for name in recompute
        for on in (False, True)
    )


WITHOUT: Mapping[str, Any] = {"linewidth": 3.5, "alpha": 0.35}  # so that it is seen under a line that covers it
LOOKS: Mapping[str, Mapping[str, Any]] = {
    _series(name, on): {"color": colours.PALETTE[i], "marker": theme.MARKERS[i], **({} if on else WITHOUT)}
    for i, name in enumerate(RECOMPUTE)
    for on in (False, True)
}


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """The memory of a GPU that can be filled."""
    return {USABLE: cluster.usable_memory}


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """Left the throughput of what fits, right the memory of the fullest GPU, if it is known."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    metrics = {name: metric.value for point in record.points for name, metric in point.metrics.items()}
    shown = [artifact.main, *(x for x in artifact.quantities if x.name == q.PEAK_MEMORY.name and x.name in metrics)]
    figure = theme.new_figure(theme.PAGE, 2.6)
    markers: dict[str, Any] = {
        RECOMPUTE[name]: Line2D([], [], **{**LOOKS[_series(name, True)], "linestyle": "none"})
        for name in dict.fromkeys(point.parameters["recompute"] for point in record.points)
    }
    others: dict[str, Any] = {
        "with sequence parallelism": Line2D([], [], color=colours.KEY),
        "without": Line2D([], [], color=colours.KEY, **WITHOUT),
    }
    interval = interval_label(artifact, [record])
    for axes, letter, quantity in zip(figure.subplots(1, len(shown), squeeze=False)[0], "ab", shown, strict=False):
        _panel(axes, artifact, record, quantity)
        if quantity is artifact.main:
            theme.name_panel(axes, letter, "throughput of what fits" + f"; bars: {interval}" * bool(interval))
            continue
        theme.name_panel(axes, letter, "memory")
        if usable := metrics.get(USABLE):
            axes.axhspan(usable / quantity.factor, axes.get_ylim()[1], color=colours.SHADE, zorder=0, linewidth=0)
            others["more than a GPU has"] = Patch(color=colours.SHADE)
    columns = theme.legend_columns([*markers], theme.figure_width(theme.PAGE), [*others])
    finish(figure, markers | others, columns, artifact, record)
    return figure


def _panel(axes: "Axes", artifact: Artifact, record: "Record", quantity: q.Quantity) -> None:
    """A quantity over t; the throughput with its intervals, and with its series side by side."""
    chart = replace(artifact, quantities=(quantity,))
    data = [mark for mark in chart_data(chart, {"": record}) if mark.value is not None]
    if quantity is artifact.main:
        series_lines(axes, data, LOOKS, "bars", APART)
    else:
        series_lines(axes, [replace(mark, low=None) for mark in data], LOOKS)
    label_axes(axes, chart, data)
    if not quantity.axis:
        axes.set_ylabel(f"Peak memory of the fullest GPU ({quantity.shown})")


def merit(record: "Record") -> str:
    """The largest changes by sequence parallelism."""
    results = Results.of_record(record)
    speed, memory = (_changes(results, metric, SIZES).values() for metric in (q.THROUGHPUT, q.PEAK_MEMORY))
    return f"sequence parallelism: throughput up to {max(speed):+.0%}, memory down to {min(memory):+.0%}"


ARTIFACT = told(
    __name__,
    sweeps={
        "paper": Sweep(
            series=_levels(*RECOMPUTE),
            x=levels("t p", *((t, GPUS // t) for t in SIZES), labels="t={t}"),
            gpus=GPUS,
            layers=96,
            hidden=12288,
            heads=96,
            vocab=51200,
            b=1,
            B=64,
        ),
        "cpu gpus": Sweep(
            series=_levels("full", "none"),
            x=levels("t p", (2, 2), (4, 1), labels="t={t}"),
            b=1,
            B=8,
            x_axis=q.XAxis("t", "Tensor-parallel size t (p = 4/t)", scale="log2"),
        ),
    },
    further=further,
    draw=draw,
    merit=merit,
)


def _both(results: Results, metric: q.Quantity, sizes: Sequence[int]) -> dict[str, tuple[float, float]]:
    """A metric without and with sequence parallelism, by recomputation and t, where both have it."""
    pairs = {}
    for name in RECOMPUTE:
        for t in sizes:
            points = [results.point(f"{name}_{on}_t{t}_p{GPUS // t}") for on in ("off", "on")]
            values = [m.value for point in points if (m := point.metrics.get(metric.name)) and m.value is not None]
            if len(values) == 2:
                pairs[f"{name}, t={t}"] = values[0], values[1]
    if not pairs:
        raise MissingResultError(f"no point has {metric.label} with and without sequence parallelism")
    return pairs


def _changes(results: Results, metric: q.Quantity, sizes: Sequence[int]) -> dict[str, float]:
    return {where: on / off - 1 for where, (off, on) in _both(results, metric, sizes).items()}


@ARTIFACT.judge
def not_slower_in_a_node(results: Results) -> Judgement:
    inside = [t for t in SIZES if t <= published.gpus_per_node()]
    changes = _changes(results, q.THROUGHPUT, inside)
    text = f"change of throughput: {listed(changes, '{:+.1%}')}"
    return holds_if(min(changes.values()) >= 0, text, results.numbers(smallest_change=min(changes.values())))


@ARTIFACT.judge
def more_bytes(results: Results) -> Judgement:
    changes = _changes(results, TENSOR_TRAFFIC, SIZES)
    most = {where: 1 / 6 if where.startswith("full") else 1 / 4 for where in changes}
    text = f"change of the bytes that a GPU sends in its tensor-parallel group: {listed(changes, '{:+.1%}')}"
    return holds_if(all(0 < changes[where] <= most[where] for where in changes), text)


@ARTIFACT.judge
def less_memory(results: Results) -> Judgement:
    changes = _changes(results, q.PEAK_MEMORY, SIZES)
    lower = all(change < 0 for where, change in changes.items() if not where.startswith("full"))
    text = f"change of peak memory: {listed(changes, '{:+.0%}')}"
    return holds_if(lower and max(changes.values()) <= 0, text)


@ARTIFACT.judge
def selective_suffices(results: Results) -> Judgement:
    peaks = _both(results, q.PEAK_MEMORY, [8])
    fits = {point.key for point in results.points if point.status == "ok"}
    text = "; ".join(f"{name}: {off / 1e9:.0f} GB without, {on / 1e9:.0f} GB with" for name, (off, on) in peaks.items())
    holds = {"selective_on_t8_p8", "full_off_t8_p8"} <= fits and not fits & {"selective_off_t8_p8", "none_off_t8_p8"}
    return holds_if(holds, text)

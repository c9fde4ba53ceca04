"""Figure 1: sizes of language models over time, with our own trend line beside the paper's."""

from collections.abc import Sequence
from math import fsum, log10
from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import training_time_approximate
from ptdp_core.simulator.memory import FP32_GRADIENT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output import colours, theme
from reproduce.output.chart import origin_lines
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ID = "fig_model_trend"
TREND = "trend_parameters"
MODELS, LINE = "models", "trend line"
BILLION = 1e9
FIRST_YEAR = 2018
LARGEST_GPU_BYTES = 80e9  # "80GB-A100 cards"
YEAR_S = 365.25 * 86400
V100_PEAK = 125e12  # NVIDIA's V100 data sheet (SXM2)
GPT_3, GPT_3_TOKENS = 175e9, 300e9
LIMIT = 20e9
JUST_ABOVE = 1.25  # how many times as large a model just above it is
# Of one sequence of 2048 tokens with every layer recomputed, on each of t = 8 GPUs: the inputs of 40 layers, h = 7168,
# and what one of these, with 56 heads, has at once: sh(10 + 24/t) + 5as^2/t.
ACTIVATION_BYTES = 2 * 2048 * 7168 * 40 + 13 * 2048 * 7168 + 5 * 56 * 2048**2 // 8
STATE_BYTES = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES + FP32_GRADIENT_BYTES


def points() -> tuple[Point, ...]:
    """The six models, and the paper's trend line at the turn of each year."""
    return tuple(
        Point(
            key=(row["model"] or f"line_{row['label']}").lower().replace("-", "_"),
            series=MODELS if row["model"] else LINE,
            label=f"{row['model']} ({row['label']})" if row["model"] else row["label"],
            parameters={name: row[name] for name in ("model", "year", "billions")},
            paper=published.paper_values(ID, row),
        )
        for row in published.rows(ID)
    )


def fit(years: Sequence[float], sizes: Sequence[float]) -> tuple[float, float, float]:
    """Least squares of log10(size) = slope*year + intercept: slope, intercept, and R^2 of the logarithms."""
    logs = [log10(size) for size in sizes]
    # Not the standard library's regression, whose last digit depends on Python's version.
    mean_x, mean_y = fsum(years) / len(years), fsum(logs) / len(logs)
    xx = fsum((x - mean_x) ** 2 for x in years)
    yy = fsum((y - mean_y) ** 2 for y in logs)
    xy = fsum((x - mean_x) * (y - mean_y) for x, y in zip(years, logs, strict=True))
    slope = xy / xx
    return slope, mean_y - slope * mean_x, xy**2 / (xx * yy)


def derive(point: Point) -> dict[str, float]:
    """Our trend line at the point's date, fitted to the six models in log space."""
    rows = [row for row in published.rows(ID) if row["model"]]
    slope, intercept, _ = fit([row["year"] for row in rows], [row["billions"] * BILLION for row in rows])
    return {TREND: 10 ** (slope * point.parameters["year"] + intercept)}


def _models(results: Results) -> tuple[list[float], list[float]]:
    points = results.of(MODELS)
    years, sizes = ([point.parameters[name] for point in points] for name in ("year", "billions"))
    return years, [size * BILLION for size in sizes]


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Sizes over time on a logarithmic axis, our line and the paper's."""
    figure = theme.new_figure(height=theme.HEIGHT + 0.2)
    axes = figure.subplots()
    points, line = ([point for point in record.points if point.series == name] for name in (MODELS, LINE))
    colour = colours.BLUE
    years, sizes = ([point.parameters[name] for point in points] for name in ("year", "billions"))
    look: dict[str, Any] = {"color": colours.ORANGE, "linestyle": "none", "marker": "o", "label": "models (paper)"}
    axes.plot(years, sizes, **look, markersize=5, markerfacecolor="none", markeredgewidth=0.9)
    for values, label, look in (("metrics", "our fit", {}), ("paper", "trend line (paper)", theme.hollow(colour, "s"))):
        known = [(p.parameters["year"], found[TREND].value) for p in line if (found := getattr(p, values))]
        axes.plot([x for x, _ in known], [y / BILLION for _, y in known], label=label, **{"color": colour, **look})
    for point, x, y in zip(points, years, sizes, strict=True):
        above = y * BILLION > point.metrics[TREND].value if point.metrics else True
        offset, ha, va = ((-5, 2), "right", "center") if above else ((5, -3), "left", "top")
        if above and x < FIRST_YEAR + 0.5:  # no room between the marker and the axis
            offset, ha, va = (0, 5), "center", "bottom"
        text = point.label.replace(" (", "\n(")
        axes.annotate(text, (x, y), offset, textcoords="offset points", ha=ha, va=va, fontsize=6.5, linespacing=0.95)
    axes.set(yscale="log", xlim=(2017.85, 2021.15), ylim=(0.02, 1000), xlabel="Year", ylabel="Parameters (billion)")
    axes.set_xticks(range(FIRST_YEAR, FIRST_YEAR + 4))
    axes.minorticks_off()
    figure.legend(loc="outside upper center", ncols=3, columnspacing=0.9, handletextpad=0.4, handlelength=1.8)
    theme.add_origin(figure, origin_lines(artifact, record))
    return figure


def notes(results: Results) -> tuple[str, ...]:
    """What the fit says in words."""
    slope, _, _ = fit(*_models(results))
    return (
        "Our line is an unweighted least-squares fit of log10(parameters) over the date to the six models as plotted; "
        f"it doubles every {12 * log10(2) / slope:.1f} months. The paper does not say how it drew its line.",
    )


ARTIFACT = told(__name__, points=points, derive=derive, draw=draw, notes=notes)


@ARTIFACT.judge
def exponential_growth(results: Results) -> Judgement:
    slope, _, r_squared = fit(*_models(results))
    text = f"a straight line through log10 of the sizes explains R^2 = {r_squared:.3f} of their variance"
    return holds_if(r_squared >= 0.9, text, numbers_of("derived", r_squared=r_squared, decades_per_year=slope))


@ARTIFACT.judge
def exponential_line(results: Results) -> Judgement:
    slope, _, _ = fit(*_models(results))
    line = results.paper_series(LINE, TREND, "year")
    paper, _, _ = fit(list(line), list(line.values()))
    text = f"{10**slope:.1f}-fold a year, the paper's line {10**paper:.1f}-fold ({slope:.2f} and {paper:.2f} decades)"
    numbers = numbers_of("derived", decades_per_year=slope) | numbers_of("paper", paper_decades_per_year=paper)
    return holds_if(abs(slope / paper - 1) <= 0.10, text, numbers)


@ARTIFACT.judge
def not_on_one_gpu(results: Results) -> Judgement:
    size = max(_models(results)[1])
    need = WEIGHT_BYTES * size
    times = need / LARGEST_GPU_BYTES
    text = f"{size / BILLION:g} billion parameters in fp16 are {need / 1e9:.0f} GB, {times:.1f} times 80 GB"
    return holds_if(need > LARGEST_GPU_BYTES, text, numbers_of("derived", "B", weights=need))


@ARTIFACT.judge
def years_on_a_v100(results: Results) -> Judgement:
    implied = training_time_approximate(GPT_3, GPT_3_TOKENS, 1, 1.0) / (288 * YEAR_S)
    text = (
        f"288 years for T = 300 billion tokens are X = {implied / 1e12:.1f} teraFLOP/s by eq. (4), "
        f"{implied / V100_PEAK:.0%} of a V100's peak; the sentence states no rate"
    )
    numbers = numbers_of("derived", "FLOP/s", implied_rate=implied)
    return Judgement("contradicted" if implied > V100_PEAK else "inconclusive", text, numbers)


@ARTIFACT.judge
def up_to_20_billion_in_a_node(results: Results) -> Judgement:
    per_gpu = STATE_BYTES / 8
    fits, above = (per_gpu * size + ACTIVATION_BYTES for size in (LIMIT, LIMIT * JUST_ABOVE))
    most = (LARGEST_GPU_BYTES - ACTIVATION_BYTES) / per_gpu
    text = (
        f"weights, gradients and Adam's state, {STATE_BYTES} bytes a parameter during the optimizer step, over 8 "
        f"GPUs, and the activations of a sequence: {fits / 1e9:.0f} GB a GPU at 20 billion, {above / 1e9:.0f} GB at "
        f"{LIMIT * JUST_ABOVE / BILLION:g} billion; 80 GB would do for {most / BILLION:.0f} billion"
    )
    numbers = numbers_of("derived", "B", at_20_billion=fits, just_above=above)
    numbers |= numbers_of("derived", "count", largest=most)
    if above <= LARGEST_GPU_BYTES:
        return Judgement("inconclusive", text, numbers)
    return holds_if(fits <= LARGEST_GPU_BYTES, text, numbers)

"""Figure 9: what two consecutive stages send, with and without scatter/gather: drawn from `ptdp_core.layout`."""

from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import pipeline_elements, scatter_gather_elements
from ptdp_core.layout import RankGrid, Transfer, boundary_transfers, gather_transfers, node_of
from ptdp_core.simulator.kernels import FP16_BYTES
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.output.colours import BLUE, LIGHT_BLUE, NOTE, ORANGE, PALE_BLUE
from reproduce.papers.shared.diagrams import arrow, box
from reproduce.papers.shared.paper_models import GPT_3
from results.records import PaperValue, PointResult, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PATH, BETWEEN, COPIES = "bytes_per_path", "bytes_between_nodes", "copies_sent"
GATHERED, PATHS = "bytes_gathered_per_gpu", "paths"
PLAIN, SCATTERED = "W/o scatter/gather", "With scatter/gather"
SIZES = (8, 2)  # the experiments' t, and the figure's
# Bytes/s each way: NVIDIA's data sheet of the A100 (600 GB/s both ways), and the paper's Section 5 (200 Gb/s a card).
NVLINK, HCA = 600e9 / 2, 200e9 / 8


def points() -> tuple[Point, ...]:
    """One boundary tensor of GPT-3 between two stages on nodes of their own, with and without, at t = 8 and 2."""
    model = published.model(GPT_3)
    sizes = model_of(model)
    return tuple(
        Point(
            key=f"{'with' if scattered else 'without'}_t{t}",
            series=series,
            label=f"t={t}",
            parameters={**model, "p": 2, "t": t, "d": 1, "b": 1, "scatter_gather": scattered},
            paper={PATH: PaperValue(FP16_BYTES * elements, "B", "text")},
        )
        for t in SIZES
        for series, scattered, elements in (
            (PLAIN, False, pipeline_elements(sizes, 1)),
            (SCATTERED, True, scatter_gather_elements(sizes, 1, t)),
        )
    )


def plan(parameters: Any) -> tuple[RankGrid, int, tuple[Transfer, ...], tuple[Transfer, ...]]:
    """The grid, the boundary tensor's elements, what goes between the stages, and what the receivers gather."""
    model = model_of(parameters)
    grid = RankGrid.sized(parameters["p"], parameters["t"], parameters["d"])
    elements = pipeline_elements(model, parameters["b"])
    scattered = parameters["scatter_gather"]
    sent = boundary_transfers(grid, 0, 1, 0, elements, scattered)
    return grid, elements, sent, gather_transfers(grid, 1, 0, elements) if scattered else ()


def derive(point: Point | PointResult) -> dict[str, float]:
    """Bytes by path, counted over the message plan. Raises ConfigurationError if t does not divide the tensor."""
    _, elements, sent, gathered = plan(point.parameters)
    receivers = {transfer.destination for transfer in sent}
    each = {rank: sum(g.elements for g in gathered if g.destination == rank) for rank in receivers}
    between = sum(transfer.elements for transfer in sent)
    return {
        PATH: FP16_BYTES * max(transfer.elements for transfer in sent),
        PATHS: len(sent),
        BETWEEN: FP16_BYTES * between,
        COPIES: between / elements,
        GATHERED: FP16_BYTES * max(each.values()),
    }


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Both ways at the experiments' t, side by side."""
    figure = theme.new_figure(height=2.9)
    shown = Results.of_record(record).of(f"t={SIZES[0]}", "label")
    for axes, letter, point in zip(figure.subplots(1, len(shown), squeeze=False)[0], "ab", shown, strict=False):
        _draw_paths(axes, letter, point)
    b, t = (shown[0].parameters[name] for name in ("b", "t"))
    lines = [
        f"one boundary tensor, GPT-3, b = {b}, t = {t}; its gradient comes back likewise",
        f"{record.fidelity}: drawn from ptdp's message plan",
    ]
    theme.add_origin(figure, lines)
    return figure


def _draw_paths(axes: "Axes", letter: str, point: PointResult) -> None:
    from matplotlib.patches import Rectangle

    grid, elements, sent, gathered = plan(point.parameters)
    axes.set_axis_off()
    theme.name_panel(axes, letter, point.series)
    t = grid.size("tp")
    nodes = sorted({node_of(rank, t) for each in sent for rank in (each.source, each.destination)})
    left = {node: 10.0 + 62.0 * i for i, node in enumerate(nodes)}
    top = {rank: 92.0 - 11 * grid.coordinates(rank)["tp"] for rank in range(grid.n)}
    for node in nodes:
        height = 11 * t + 1
        frame = Rectangle((left[node] - 3, 100.5 - height), 24, height, fill=False, edgecolor=NOTE, linewidth=0.7)
        axes.add_patch(frame)
        axes.text(left[node] + 9, 102, f"stage {node + 1}", ha="center", va="bottom", fontsize=6.5)
    for rank in range(grid.n):
        node, second = node_of(rank, t), grid.coordinates(rank)["pp"] > 0
        x, y = left[node], top[rank]
        box(axes, x, y - 1.5, 18, 8, PALE_BLUE, BLUE)
        for transfer in sent:  # which part of the tensor crosses at this GPU
            if rank == (transfer.destination if second else transfer.source):
                start, stop = (18 * edge / elements for edge in (transfer.start, transfer.stop))
                box(axes, x + start, y - 1.5, stop - start, 8, LIGHT_BLUE)
        beside, side = (x + 23.5, "left") if second else (x - 5.5, "right")
        axes.text(beside, y + 2.3, str(rank), ha=side, va="center", fontsize=6)
    for transfer in sent:
        from_x, to_x = (left[node_of(rank, t)] for rank in (transfer.source, transfer.destination))
        ends = top[transfer.source] + 2.5, top[transfer.destination] + 2.5
        arrow(axes, from_x + 21.5, ends[0], to_x - 3.5, ends[1], ORANGE)
    metrics = derive(point)
    size, total, into_each = (metrics[name] / 1e6 for name in (PATH, BETWEEN, GATHERED))
    text = f"InfiniBand: {len(sent)} × {size:.1f} MB\n= {total:.0f} MB"
    if gathered:
        text += f"\nNVLink: all-gather, {into_each:.1f} MB\ninto each GPU"
        x = left[nodes[1]] + 36
        arrow(axes, x, top[gathered[-1].source] - 2, x, top[gathered[0].source] + 8, BLUE, "<|-|>")
    else:
        text += "\nthe same tensor on every path\n"
    axes.text(50, 8, text, ha="center", va="top", fontsize=6.5)
    axes.set(xlim=(-1, 111), ylim=(-22, 110))


ARTIFACT = told(__name__, points=points, derive=derive, draw=draw)


def _judge_path(results: Results, series: str, formula: str) -> Judgement:
    rows = results.of(series)
    equal = all(results.value(point.key, PATH) == point.paper[PATH].value for point in rows)
    sizes = ", ".join(f"{results.value(p.key, PATH) / 1e6:.2f} MB at {p.label}" for p in rows)
    copies = ", ".join(f"{results.value(p.key, COPIES):g} ({p.label})" for p in rows)
    text = (
        f"each pair of GPUs sends {'' if equal else 'not '}{formula} elements one way ({sizes}, GPT-3, b=1, fp16); "
        f"all pairs of the two stages together send this many times the tensor: {copies}"
    )
    return holds_if(equal, text)


@ARTIFACT.judge
def pipeline_communication_bsh(results: Results) -> Judgement:
    return _judge_path(results, PLAIN, "bsh")


@ARTIFACT.judge
def same_tensors_8_times(results: Results) -> Judgement:
    point = results.point("without_t8")
    _, elements, sent, _ = plan(point.parameters)
    same = {(transfer.start, transfer.stop) for transfer in sent} == {(0, elements)}
    copies = results.value(point.key, COPIES)
    text = f"at t=8 the plan has {len(sent)} messages, {'all of the whole tensor' if same else 'not all the same'}"
    return holds_if(same and copies == 8, text, numbers_of("derived", copies=copies))


@ARTIFACT.judge
def peers_of_figure_9(results: Results) -> Judgement:
    _, elements, sent, gathered = plan(results.point("with_t2").parameters)
    pairs = {(transfer.source + 1, transfer.destination + 1) for transfer in sent}
    whole = True
    for rank in {transfer.destination for transfer in sent}:
        parts = sorted((g.start, g.stop) for g in (*sent, *gathered) if g.destination == rank)
        ends = [0, *(stop for _, stop in parts)]
        whole &= [start for start, _ in parts] == ends[:-1] and ends[-1] == elements
    shown = ", ".join(f"{source} to {destination}" for source, destination in sorted(pairs))
    text = (
        f"at t=2 rank {shown}; gathered, every receiver has {'the whole tensor' if whole else 'not the whole tensor'}"
    )
    return holds_if(pairs == {(1, 3), (2, 4)} and whole, text)


@ARTIFACT.judge
def scatter_gather_bsh_over_t(results: Results) -> Judgement:
    return _judge_path(results, SCATTERED, "bsh/t")


@ARTIFACT.judge
def nvlink_much_faster(results: Results) -> Judgement:
    ratio = NVLINK / HCA
    text = f"{NVLINK / 1e9:.0f} GB/s of NVLink against {HCA / 1e9:.0f} GB/s of a 200 Gb/s HDR card: {ratio:g} times"
    return holds_if(ratio >= 10, text, numbers_of("derived", ratio=ratio))

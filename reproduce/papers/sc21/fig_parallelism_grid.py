"""Figure 2: tensor and pipeline model parallelism combined, and where the ranks sit: drawn from `ptdp_core.layout`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptdp_core.config import ModelConfig
from ptdp_core.layout import COLUMN, RankGrid, chunk_layers, layer_parameters, node_of
from ptdp_core.schedules import looped
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.output.colours import BLUE, ORANGE, STAGES
from reproduce.papers.shared import paper_models
from reproduce.papers.shared.diagrams import box
from results.records import PaperValue, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GPU_COUNT, NODES = "gpus", "nodes"
TENSOR_NODES, DATA_NODES = "nodes_per_tensor_group", "nodes_per_data_group"
HOPS_BETWEEN, STAGE = "pipeline_hops_between_nodes", "layers_per_gpu"
DRAWN, TABLE_1 = "drawn", "Table 1"
COLOURS = ((STAGES[0], BLUE), (STAGES[1], ORANGE))  # of the two stages, and of their outlines


def points() -> tuple[Point, ...]:
    """The grid that is drawn, and those of Table 1."""
    per_node = published.gpus_per_node()
    drawn = {"layers": 8, "hidden": 12288, "heads": 96, "p": 2, "t": 8, "d": 2, "v": 1, "gpus_per_node": per_node}
    rows = tuple(
        Point(
            row.key,
            TABLE_1,
            row.label,
            {**{name: value for name, value in row.parameters.items() if name in drawn}, "gpus_per_node": per_node},
            {GPU_COUNT: PaperValue(printed["gpus"], "count", "table")},
        )
        for row, printed in zip(paper_models.table_1(), published.rows("table_weak_scaling"), strict=True)
    )
    return (Point(DRAWN, DRAWN, "the figure", drawn), *rows)


def _sizes(parameters: Mapping[str, Any]) -> tuple[RankGrid, ModelConfig, int, int]:
    grid = RankGrid.sized(parameters["p"], parameters["t"], parameters["d"])
    model = ModelConfig(parameters["layers"], parameters["hidden"], parameters["heads"])
    return grid, model, parameters["v"], parameters["gpus_per_node"]


def derive(point: Point) -> dict[str, float]:
    """Counted over all ranks and groups of the grid. Raises ConfigurationError if the layers do not split."""
    grid, model, v, per_node = _sizes(point.parameters)

    def nodes(group: tuple[int, ...]) -> int:
        return len({node_of(rank, per_node) for rank in group})

    p = grid.size("pp")
    hops = [chain[pp : pp + 2] for chain in grid.groups("pp") for pp in range(p - 1)]
    layers = {sum(map(len, chunk_layers(model.layers, looped(p, v), pp))) for pp in range(p)}
    between = sum(nodes(hop) > 1 for hop in hops) / len(hops) if hops else 0.0
    return {
        GPU_COUNT: grid.n,
        NODES: nodes(tuple(range(grid.n))),
        TENSOR_NODES: max(map(nodes, grid.groups("tp"))),
        DATA_NODES: max(map(nodes, grid.groups("dp"))),
        STAGE: max(layers),
        HOPS_BETWEEN: between,
    }


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Above, the layers and which slice of each is whose; below, the ranks on their nodes."""
    parameters = Results.of_record(record).point(DRAWN).parameters
    figure = theme.new_figure(height=3.9)
    above, below = figure.subplots(2, 1, height_ratios=(1.0, 1.1), gridspec_kw={"hspace": 0.12})
    for axes in (above, below):
        axes.set_axis_off()
        axes.grid(False)
    _draw_layers(above, parameters)
    _draw_ranks(below, parameters)
    theme.add_origin(figure, [f"{record.fidelity}: drawn from ptdp's rank grid and shard map"])
    return figure


def _draw_layers(axes: "Axes", parameters: Mapping[str, Any]) -> None:
    grid, model, v, _ = _sizes(parameters)
    p, t = grid.size("pp"), grid.size("tp")
    right = 0.0
    for pp in range(p):
        left = right
        for layer in (layer for chunk in chunk_layers(model.layers, looped(p, v), pp) for layer in chunk):
            (up,) = (q for q in layer_parameters(model, layer) if q.name.endswith("mlp.up.weight"))
            for tp in range(t):
                shard = up.shard(t, tp)
                low, high = (row / up.shape[COLUMN] for row in (shard.start, shard.stop))
                box(axes, right, 1 - high, 0.82, high - low, *COLOURS[pp % 2])
            axes.text(right + 0.41, 1.03, str(layer + 1), ha="center", va="bottom", fontsize=6.5)
            right += 1
        text = f"pipeline MP partition {pp + 1}\n(pp {pp})"
        axes.text((left + right) / 2 - 0.09, -0.05, text, ha="center", va="top", fontsize=7, color=COLOURS[pp % 2][1])
        right += 0.35
    for tp in range(t):
        shard = up.shard(t, tp)
        middle = 1 - (shard.start + shard.stop) / 2 / up.shape[COLUMN]
        axes.text(-0.15, middle, f"tp {tp}", ha="right", va="center", fontsize=5.5)
    part = f"MLP: {up.shard(t, 0).shape[COLUMN]} of {up.shape[COLUMN]} columns"
    title = f"layers, each in {t} slices ({part})"
    theme.name_panel(axes, "a", title)
    axes.set(xlim=(-1.0, right - 0.3), ylim=(-0.3, 1.18))


def _draw_ranks(axes: "Axes", parameters: Mapping[str, Any]) -> None:
    from matplotlib.patches import FancyBboxPatch

    grid, _, _, per_node = _sizes(parameters)
    for rank in range(grid.n):
        coordinates = grid.coordinates(rank)
        pp, dp = coordinates["pp"], coordinates["dp"]
        node, slot = node_of(rank, per_node), rank % per_node
        box(axes, slot + 0.08, -node + 0.14, 0.84, 0.62, *COLOURS[pp % 2])
        axes.text(slot + 0.5, -node + 0.45, str(rank), ha="center", va="center", fontsize=6.5)
        if slot == 0:
            shape = "round,pad=0,rounding_size=0.1"
            axes.add_patch(FancyBboxPatch((0, -node + 0.06), per_node, 0.78, shape, fill=False, linewidth=0.7))
            axes.text(-0.15, -node + 0.45, f"node {node}", ha="right", va="center", fontsize=6.5)
            colour = COLOURS[pp % 2][1]
            axes.text(per_node + 0.15, -node + 0.45, f"pp {pp}, dp {dp}", va="center", fontsize=6.5, color=colour)
    nodes = node_of(grid.n - 1, per_node) + 1
    p, t, d = map(grid.size, ("pp", "tp", "dp"))
    title = f"ranks of (p, t, d) = ({p}, {t}, {d}) on {nodes} nodes of {per_node} GPUs"
    theme.name_panel(axes, "b", title)
    tensor, data, pipeline = (
        "–".join(map(str, (group[0], group[-1]))) if len(group) > 2 else ", ".join(map(str, group))
        for group in map(grid.group, ("tp", "dp", "pp"))
    )
    text = f"rank 0's groups: tensor {tensor}; data {data}; pipeline {pipeline}"
    axes.text(per_node / 2, -nodes + 0.85, text, ha="center", va="top", fontsize=6.5)
    axes.set(xlim=(-1.7, per_node + 1.9), ylim=(-nodes + 0.4, 1.0))


ARTIFACT = told(__name__, points=points, derive=derive, draw=draw)


@ARTIFACT.judge
def tensor_inside_pipeline_across(results: Results) -> Judgement:
    rows = results.of(TABLE_1)
    inside = [p.label for p in rows if results.value(p.key, TENSOR_NODES) == 1]
    pipelined = [p for p in rows if p.parameters["p"] > 1]
    between = [p.label for p in pipelined if results.value(p.key, HOPS_BETWEEN) == 1]
    text = (
        f"tensor-parallel groups lie inside a node in {len(inside)} of {len(rows)} rows of Table 1; all pipeline hops "
        f"go between nodes in {len(between)} of the {len(pipelined)} with p > 1; tensor rank fastest, then data, then "
        "pipeline"
    )
    numbers = numbers_of("derived", "count", tensor_inside=len(inside), pipeline_between=len(between))
    return holds_if(len(inside) == len(rows) and len(between) == len(pipelined), text, numbers)

"""Figure 5: blocks of a transformer layer split by tensor parallelism, drawn from the shards of `ptdp_core.layout`."""

from collections.abc import Sequence
from math import erf, fsum, sqrt
from typing import TYPE_CHECKING

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import ring_factor, tensor_parallel_elements
from ptdp_core.layers.blocks import LayerRun, block
from ptdp_core.layout import COLUMN, ROW, Parameter, all_reduces, chunk_parameters, layer_parameters
from ptdp_core.simulator.kernels import FP16_BYTES
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output import theme
from reproduce.papers.shared.diagrams import block_height, draw_block
from reproduce.papers.shared.paper_models import GPT_3
from results.records import PaperValue, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ELEMENTS, WHOLE = "elements_per_gpu", "elements_in_all"
FORWARD, BACKWARD = "all_reduces_forward", "all_reduces_backward"
COST_FORWARD, COST_BACKWARD = "cost_model_all_reduces_forward", "cost_model_all_reduces_backward"
SHARDS, LAYER, STAGE = "parameters", "communication of a layer", "communication of a stage"
SIZES = (2, 4, 8)
SPLITS = {None: "whole", COLUMN: "columns", ROW: "rows"}


def points() -> tuple[Point, ...]:
    """The parameters of a layer of GPT-3 at t = 8; what a layer and a stage of it communicate at several t."""
    plain, p = published.model(GPT_3), published.configuration(GPT_3)["p"]
    model, t, b = model_of(plain), SIZES[-1], 1
    points: list[Point] = []
    for parameter in layer_parameters(model, 0):
        whole, own = (" x ".join(map(str, part.shape)) for part in (parameter, parameter.shard(t, 0)))
        shown = {"name": parameter.name, "split": SPLITS[parameter.split], "whole": whole, "own": own}
        points.append(Point(parameter.name, SHARDS, parameter.name, {**plain, "t": t, "b": b, **shown}))
    for series, layers in ((LAYER, 1), (STAGE, model.layers // p)):
        for t in SIZES:
            theirs = PaperValue(layers * tensor_parallel_elements(model, b, t), "count", "text")
            points.append(
                Point(
                    key=f"{series.rsplit(' ', 1)[1]}_t{t}",
                    series=series,
                    label=f"t={t}",
                    parameters={**plain, "t": t, "b": b, "stage_layers": layers},
                    paper={ELEMENTS: theirs},
                )
            )
    return tuple(points)


def _weights(model: ModelConfig, block: str) -> list[Parameter]:
    """The matrices of a block of layer 0, in the order of computation."""
    return [q for q in layer_parameters(model, 0) if f".{block}." in q.name and len(q.shape) == 2]


def derive(point: Point) -> dict[str, float]:
    """A parameter's slice; or what g and f send, as many as the shard map makes, by rings. ValueError for a bad t."""
    parameters = point.parameters
    model, t, b = model_of(parameters), parameters["t"], parameters["b"]
    if point.series == SHARDS:
        (parameter,) = (q for q in layer_parameters(model, 0) if q.name == parameters["name"])
        shards = [parameter.shard(t, tp) for tp in range(t)]
        return {
            ELEMENTS: shards[0].elements,
            WHOLE: sum(s.elements for s in shards),
        }
    layers = parameters["stage_layers"]
    # A stage in the middle: layers only, and none of the model's ends.
    forward, backward = all_reduces(chunk_parameters(model, range(1, 1 + layers), t, is_first=False, is_last=False))
    layer = block(model, LayerRun(b, t), model.usual_kind)
    costs = [work.all_reduce_bytes for work in (layer.forward, layer.backward)]
    sent = sum(2 * ring_factor(t) * size / FP16_BYTES for sizes in costs for size in sizes) * layers
    return {
        ELEMENTS: sent,
        FORWARD: forward,
        BACKWARD: backward,
        COST_FORWARD: layers * len(costs[0]),
        COST_BACKWARD: layers * len(costs[1]),
    }


def draw(artifact: Artifact, record: Record) -> "Figure":
    """Both blocks: what enters, the slices of the first and of the last rank, f and g, what leaves."""
    results = Results.of_record(record)
    model, t = _shown(results)
    forward, backward = (results.value(f"layer_t{t}", name) for name in (FORWARD, BACKWARD))
    figure = theme.new_figure(height=4.2)
    blocks = (
        ("MLP: A and B", "mlp", "GeLU"),
        ("Self-attention: QKV and output", "attention", f"{model.heads // t} heads"),
    )
    heights = [block_height(_weights(model, name)) for _, name, _ in blocks]
    panels = figure.subplots(2, 1, height_ratios=heights)
    for axes, letter, (title, name, between) in zip(panels, "ab", blocks, strict=True):
        theme.name_panel(axes, letter, f"{title}, GPT-3 (h = {model.hidden}), t = {t}")
        draw_block(axes, _weights(model, name), t, between)
    lines = [
        "f: forward identity, backward all-reduce; g: the reverse",
        f"a layer and microbatch: {forward:g} all-reduces forward, {backward:g} backward",
        f"{record.fidelity}: drawn from ptdp's shard map",
    ]
    theme.add_origin(figure, lines)
    return figure


ARTIFACT = told(__name__, points=points, derive=derive, draw=draw)


@ARTIFACT.judge
def two_all_reduces_each_way(results: Results) -> Judgement:
    counts = {
        tuple(results.value(point.key, name) for name in (FORWARD, BACKWARD, COST_FORWARD, COST_BACKWARD))
        for point in results.of(LAYER)
    }
    ((forward, backward, cost_forward, cost_backward),) = counts if len(counts) == 1 else ((0.0, 0.0, 0.0, 0.0),)
    text = (
        f"a layer makes {forward:.0f} all-reduces forward and {backward:.0f} backward by the shard map (a g for each "
        f"row-parallel, an f for each column-parallel matrix), {cost_forward:.0f} and {cost_backward:.0f} in the cost "
        "model"
    )
    numbers = numbers_of("derived", "count", forward=forward, backward=backward)
    return holds_if(counts == {(2.0, 2.0, 2.0, 2.0)}, text, numbers)


def _shown(results: Results) -> tuple[ModelConfig, int]:
    """The model whose slices are shown, and their tensor-parallel size t."""
    point, *_ = results.of(SHARDS)
    return model_of(point.parameters), point.parameters["t"]


@ARTIFACT.judge
def no_communication_between_the_gemms(results: Results) -> Judgement:
    wrong = []
    model, t = _shown(results)
    for name in ("mlp", "attention"):
        first, second = _weights(model, name)
        per_row = first.shape[COLUMN] // second.shape[ROW]  # columns of the first for a row of the second
        for tp in range(t):
            columns, rows = first.shard(t, tp), second.shard(t, tp)
            meet = (columns.start, columns.stop) == (per_row * rows.start, per_row * rows.stop)
            if (first.split, second.split) != (COLUMN, ROW) or not meet:
                wrong.append(f"{name}, rank {tp}")
    text = (
        f"outputs of the first matrix are not the inputs of the second at {'; '.join(wrong)}"
        if wrong
        else "every rank's columns of the first matrix are its rows of the second, in the MLP and in the attention"
    )
    return holds_if(not wrong, text)


@ARTIFACT.judge
def column_parallel_heads(results: Results) -> Judgement:
    model, t = _shown(results)
    qkv, projection = _weights(model, "attention")
    width = model.hidden // model.heads
    cuts = [shard.start % (3 * width) for shard in (qkv.shard(t, tp) for tp in range(t))]
    cuts += [projection.shard(t, tp).start % width for tp in range(t)]
    text = f"at t={t} every rank has the columns of {model.heads // t} whole heads of {model.heads}, and their rows"
    return holds_if(not any(cuts), text if not any(cuts) else f"at t={t} a slice cuts a head of {width}")


@ARTIFACT.judge
def conjugate_operators(results: Results) -> Judgement:
    model, _ = _shown(results)
    matrices = [q for name in ("mlp", "attention") for q in _weights(model, name)]
    counts = {q.name: (SPLITS[q.split], *all_reduces([q])) for q in matrices}
    expected = {("columns", 0, 1), ("rows", 1, 0)}
    text = "all-reduces forward and backward: " + "; ".join(
        f"{name} by {split}: {forward} and {backward}" for name, (split, forward, backward) in counts.items()
    )
    return holds_if(set(counts.values()) == expected, text)


Matrix = Sequence[Sequence[float]]
X: Matrix = ((1.0, -2.0, 0.5, 1.5), (-0.5, 1.0, 2.0, -1.0))
WEIGHT: Matrix = ((0.5, -1.0, 1.0, 0.25), (1.0, 0.5, -0.5, -1.0), (-1.0, 2.0, 0.5, 1.0), (0.25, 1.0, -1.5, 0.5))


def _times(a: Matrix, b: Matrix) -> list[list[float]]:
    return [[fsum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def gelu(x: float) -> float:
    """GeLU, x times the normal distribution's share below x."""
    return x * (1 + erf(x / sqrt(2))) / 2


def _gelu(matrix: Matrix) -> list[list[float]]:
    return [[gelu(x) for x in row] for row in matrix]


def _apart(a: Matrix, b: Matrix) -> float:
    """The largest difference of an element."""
    return max(abs(x - y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


@ARTIFACT.judge
def gelu_of_each_part(results: Results) -> Judgement:
    half = len(WEIGHT) // 2
    whole = _gelu(_times(X, WEIGHT))
    left, right = (_gelu(_times(X, [row[part] for row in WEIGHT])) for part in (slice(half), slice(half, None)))
    by_columns = [[*a, *b] for a, b in zip(left, right, strict=True)]
    upper, lower = (_gelu(_times([row[part] for row in X], WEIGHT[part])) for part in (slice(half), slice(half, None)))
    by_rows = [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(upper, lower, strict=True)]
    largest = max(abs(x) for row in whole for x in row)
    columns, rows = (_apart(whole, parts) / largest for parts in (by_columns, by_rows))
    text = (
        f"largest difference from GeLU(XA), over its largest element: {columns:g} by columns, {rows:.0%} by rows, "
        "where XA has to be summed over the ranks first"
    )
    return holds_if(columns == 0 and rows > 0.01, text, numbers_of("derived", by_columns=columns, by_rows=rows))

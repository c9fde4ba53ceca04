"""Beyond the paper: expert parallelism against tensor parallelism, two mixtures of experts on 64 H100s and in a
GB200 NVL72.

Takeaway 1 asks how far tensor parallelism should go before another axis. Here the other axis gives GPUs different
experts (e) in place of parts of the same ones (t).
"""

from itertools import product
from typing import TYPE_CHECKING, Any

from reproduce.annex.papers import clusters
from reproduce.annex.papers.clusters import CLUSTERS
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.results import Results, listed
from reproduce.experiment.sweep import LAPTOP, Point
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared.paper_models import LLAMA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from results.records import Record

GPUS, NODE = 64, 8
MODELS: dict[str, dict[str, Any]] = {
    "Mixtral 8x7B": {
        "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "vocab": 32000,
        "experts": 8, "experts_per_token": 2,
    },
    "Qwen3 30B": {
        "layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128, "vocab": 151936,
        "ffn_hidden": 6144, "expert_ffn_hidden": 768, "experts": 128, "experts_per_token": 8,
    },
}  # fmt: skip
KEYS = {"Mixtral 8x7B": "mixtral", "Qwen3 30B": "qwen3"}
# All that the eight GPUs of a node can be, t*e = 8, then experts over 2 to 8 nodes. Mixtral has 8 experts, and Qwen3 4
# key and value heads, which t divides.
SIZES = {"Mixtral 8x7B": (1, 2, 4, 8), "Qwen3 30B": (2, 4, 8, 16, 32, 64)}
COMMON: dict[str, Any] = {
    "seq": 4096, "p": 1, "b": 1, "B": 1024, "recompute": "auto", "attention": "sdpa", "sequence_parallel": True,
    "sharded_optimizer": True, "data_parallel": "torch",
}  # fmt: skip
# On a laptop a node's two GPUs are a tensor-parallel pair, or a pair of experts; or experts are over two nodes.
# DualPipeV runs its pairs of passes one after the other, or together.
ONE_AFTER_THE_OTHER, TOGETHER = "p = 2, DualPipeV", "p = 2, overlapped DualPipeV"


def points() -> tuple[Point, ...]:
    """Both models with each of their expert-parallel sizes, on both clusters."""
    made = []
    for (name, cluster), (model, sizes) in product(CLUSTERS.items(), SIZES.items()):
        for e in sizes:
            t = max(NODE // e, 1)
            parameters = {**MODELS[model], **LLAMA, **COMMON, "cluster": cluster, "e": e, "t": t, "d": GPUS // t}
            made.append(Point(f"{cluster}_{KEYS[model]}_e{e}", f"{model} on {name}", str(e), parameters))
    return tuple(made)


def _speeds(results: Results, cluster: str, model: str) -> dict[int, float]:
    return {e: results.value(f"{cluster}_{KEYS[model]}_e{e}", q.MODEL_THROUGHPUT) for e in SIZES[model]}


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """A panel for each cluster; a laptop's points are of one."""
    return (line_plot if record.scale == LAPTOP else clusters.draw)(artifact, record)


def notes(results: Results) -> tuple[str, ...]:
    """How far such predictions go; of emulated points, what is hidden where passes run together."""
    said = (
        "Not in the paper. Public runs with experts are predicted badly as yet, 41% off on average (docs/blind.md); no "
        "interval is known for them. Of GB200 no run was scored: its claim is judged by the widest margin there is."
    )
    if results.scale != LAPTOP:
        return (said,)
    gains = results.gains(TOGETHER, ONE_AFTER_THE_OTHER, q.MODEL_THROUGHPUT, "e")
    return (
        said,
        f"Throughput of DualPipeV overlapped over one pass after the other, by e: {listed(gains, '{:+.0%}')}. With "
        "e = 1 nothing is hidden: there the gain is that no rank waits to exchange a message in the midst of a pair.",
    )


def merit(record: "Record") -> str:
    """The best expert-parallel size of each model."""
    if record.scale == LAPTOP:
        return ""
    results = Results.of_record(record)
    best = {
        model: max(speeds, key=speeds.__getitem__) for model in MODELS for speeds in [_speeds(results, "h100", model)]
    }
    return "fastest on H100: " + ", ".join(f"{model} e={e}" for model, e in best.items())


ARTIFACT = told(__name__, points=points, draw=draw, merit=merit, notes=notes)

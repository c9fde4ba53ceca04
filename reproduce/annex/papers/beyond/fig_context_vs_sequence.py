"""Beyond the paper: context parallelism against tensor and pipeline parallelism over sequence lengths, Llama-3 8B on
64 H100s and 64 GPUs of a GB200 NVL72.

Eight GPUs of a node share a sequence: by its heads and matrices (t, with sequence parallelism), by its tokens (c,
around a ring), by both, or by the model's layers (p).
"""

from typing import TYPE_CHECKING

from reproduce.annex.papers.clusters import CLUSTERS, draw
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, listed
from reproduce.experiment.sweep import Level, Sweep, levels
from reproduce.experiment.told import told
from reproduce.papers.shared.paper_models import LLAMA

if TYPE_CHECKING:
    from results.records import Record

GPUS, SHARING, TOKENS = 64, 8, 2**22
LENGTHS = tuple(2**k for k in range(13, 18))
WAYS = {f"t{SHARING // c}_c{c}": {"t": SHARING // c, "c": c} for c in (1, 2, 4, 8)} | {"p8": {"p": SHARING}}
TENSOR, CONTEXT, PIPELINE = "t8_c1", "t1_c8", "p8"


def _speed(results: Results, cluster: str, way: str, seq: int) -> float:
    return results.value(f"{cluster}_{way}_seq{seq}_B{TOKENS // seq}", q.MODEL_THROUGHPUT.name)


def _gains(results: Results, cluster: str, over: str = TENSOR, lengths: tuple[int, ...] = LENGTHS) -> dict[str, float]:
    """The throughput with c = 8 over that with t = 8, or another way, by length."""
    return {
        f"{seq:,} tokens": _speed(results, cluster, CONTEXT, seq) / _speed(results, cluster, over, seq) - 1
        for seq in lengths
    }


def merit(record: "Record") -> str:
    """What sharing tokens is worth at the shortest and the longest sequences."""
    gains = list(_gains(Results.of_record(record), "h100").values())
    return f"c=8 over t=8: {gains[0]:+.0%} at 8K tokens, {gains[-1]:+.0%} at 128K (H100)"


ARTIFACT = told(
    __name__,
    sweeps={
        "paper": Sweep(
            series=tuple(
                Level(
                    f"{', '.join(f'{letter}={size}' for letter, size in sizes.items())} on {name}",
                    f"{cluster}_{way}",
                    {"t": 1, "c": 1, "p": 1, **sizes, "cluster": cluster},
                )
                for name, cluster in CLUSTERS.items()
                for way, sizes in WAYS.items()
            ),
            x=levels("seq B", *((seq, TOKENS // seq) for seq in LENGTHS), labels="{seq}"),
            gpus=GPUS,
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            ffn_hidden=14336,
            vocab=128256,
            **LLAMA,
            d=GPUS // SHARING,
            b=1,
            recompute="auto",
            attention="sdpa",
            sequence_parallel=True,
            sharded_optimizer=True,
            data_parallel="torch",
            context_exchange="ring",
        )
    },
    draw=draw,
    merit=merit,
)


@ARTIFACT.judge
def context_first(results: Results) -> Judgement:
    """Inside a node of H100s context comes before tensor parallelism, for long sequences of a model with
    grouped queries.
    """
    gains = _gains(results, "h100")
    return holds_if(min(gains.values()) > 0, f"c=8 over t=8: {listed(gains, '{:+.1%}')}")


@ARTIFACT.judge
def gain_falls(results: Results) -> Judgement:
    """What context parallelism gains over tensor parallelism falls with the length of the sequences."""
    gains = list(_gains(results, "h100").values())
    return holds_if(gains[-1] < gains[0], f"from {gains[0]:+.1%} at {LENGTHS[0]:,} tokens to {gains[-1]:+.1%}")


@ARTIFACT.judge
def context_first_gb200(results: Results) -> Judgement:
    """Context comes before tensor parallelism in a GB200 NVL72, too."""
    gains = _gains(results, "gb200")
    return holds_if(min(gains.values()) > 0, f"c=8 over t=8: {listed(gains, '{:+.1%}')}")


@ARTIFACT.judge
def context_before_pipeline(results: Results) -> Judgement:
    """For long sequences context comes before pipeline parallelism."""
    gains = {name: _gains(results, cluster, PIPELINE, LENGTHS[:-1]) for name, cluster in CLUSTERS.items()}
    listings = "; ".join(f"{name}: {listed(each, '{:+.0%}')}" for name, each in gains.items())
    return holds_if(min(min(each.values()) for each in gains.values()) > 0, f"c=8 over p=8: {listings}")

"""Beyond the paper: context parallelism against tensor and pipeline parallelism over sequence lengths, Llama-3 8B on
64 H100s and 64 GPUs of a GB200 NVL72.

Eight GPUs of a node share a sequence: by its heads and matrices (t, with sequence parallelism), by its tokens (c,
around a ring), by both, or by the model's layers (p).
"""

from typing import TYPE_CHECKING

from reproduce.annex.papers.clusters import CLUSTERS, draw
from reproduce.experiment import quantities as q
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Level, Sweep, levels
from reproduce.experiment.told import told
from reproduce.papers.shared.paper_models import LLAMA

if TYPE_CHECKING:
    from results.records import Record

GPUS, SHARING, TOKENS = 64, 8, 2**22
LENGTHS = tuple(2**k for k in range(13, 18))
WAYS = {f"t{SHARING // c}_c{c}": {"t": SHARING // c, "c": c} for c in (1, 2, 4, 8)} | {"p8": {"p": SHARING}}


def merit(record: "Record") -> str:
    """What sharing tokens is worth at the shortest and the longest sequences."""
    results = Results.of_record(record)
    gains = list(results.gains("t=1, c=8 on H100", "t=8, c=1 on H100", q.MODEL_THROUGHPUT, "seq").values())
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

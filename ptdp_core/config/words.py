"""Names of configurations elsewhere: of precisions, of earlier records, of other frameworks."""

from collections.abc import Mapping
from typing import Any

DTYPES = {"fp32": 4, "fp64": 8, "bf16": 2, "fp16": 2}  # precisions by their names in configurations and records: bytes
OLDER_DTYPES = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}
# Keys that other frameworks have, and what to say of them: a near spelling among ours would be wrong advice.
KEYS_ELSEWHERE = {
    **{f"{letter}p": f"the paper's letter is {letter}; try {letter}" for letter in "ptd"},
    "cp": "context parallelism is the letter c here; try c",
    "ep": "expert parallelism is the letter e here; try e",
    "pipeline_model_parallel_layout": "try pipeline_layout",
    **dict.fromkeys(("gpus", "n", "world_size"), "GPUs are p*t*c*d; try d"),
    **dict.fromkeys(("batch", "batch_size", "global_batch_size", "gbs"), "the batch in sequences is B; try B"),
    **dict.fromkeys(("micro_batch_size", "mbs"), "a microbatch has b sequences; try b"),
    **dict.fromkeys(("seq_len", "seq_length", "sequence_length", "context_length"), "try seq"),
    **dict.fromkeys(("fsdp", "zero", "zero_stage"), "try data_parallel='zero3'"),
    "hsdp": "try data_parallel='zero3' with zero3_shards, the GPUs that share a copy of the states",
    **dict.fromkeys(("power", "power_cap", "power_limit"), "watts are of the cluster; try cluster='h100-500w'"),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpointing"), "try recompute='full'"),
    **dict.fromkeys(("fp8", "precision", "dtype"), "runs are in 16 bits, or have an fp8_recipe; try fp8_recipe"),
}


def in_todays_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values in which the names that earlier records used are replaced by today's.

    scheme='zero3' is data_parallel='zero3' now, and a dtype has the engine's name where it was PyTorch's.
    """
    today = dict(values)
    if values.get("scheme") == "zero3":
        today["data_parallel"] = "zero3"
    if (dtype := values.get("dtype")) in OLDER_DTYPES:
        today["dtype"] = OLDER_DTYPES[dtype]
    return today

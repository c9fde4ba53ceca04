"""Which artifacts there are: those with a module in `reproduce/artifacts/`. Ids are stable words."""

from importlib import import_module
from pathlib import Path

from benchmarks.records.errors import UnavailableError, UsageError, did_you_mean
from reproduce.experiment.artifact import Artifact

# Every figure and table of the paper's evaluation and analysis, in the paper's order; then what is beyond it.
LABELS = {
    "fig_model_trend": "Figure 1",
    "fig_parallelism_grid": "Figure 2",
    "fig_gpipe_timeline": "Figure 3",
    "fig_interleaved_timeline": "Figure 4",
    "fig_tensor_partition": "Figure 5",
    "fig_bubble": "Figure 6",
    "fig_microbatch_single_gpu": "Figure 7",
    "fig_microbatch_estimate": "Figure 8",
    "table_recompute_memory": "Section 3.5",
    "fig_scatter_gather_paths": "Figure 9",
    "table_weak_scaling": "Table 1",
    "table_training_time": "Section 5.1",
    "table_zero3": "Table 2",
    "fig_zero3": "Figure 10",
    "fig_pipeline_weak_scaling": "Figure 11",
    "fig_interleaved": "Figure 12",
    "fig_tensor_vs_pipeline": "Figure 13",
    "fig_pipeline_vs_data": "Figure 14",
    "fig_tensor_vs_data": "Figure 15",
    "fig_microbatch": "Figure 16",
    "fig_recomputation": "Figure 17",
    "fig_scatter_gather": "Figure 18",
    "table_fused_operators": "Section 5.8",
    "table_bandwidth": "Section 5.9",
    "table_checkpoint": "Section 5.10",
    "fig_schedules": "Beyond the paper",
}

_FOLDER = Path(__file__).parents[1] / "artifacts"


def ids() -> tuple[str, ...]:
    """The ids of the artifacts that this version has, in the paper's order."""
    return tuple(id for id in LABELS if (_FOLDER / f"{id}.py").is_file())


def load(id: str, commands: tuple[str, ...] = ()) -> Artifact:
    """The artifact of that id. Raises `UsageError` if unknown, `UnavailableError` if not there yet.

    `commands` are further words that an unknown id may have been meant to be.
    """
    known = ids()
    if id in known:
        artifact: Artifact = import_module(f"reproduce.artifacts.{id}").ARTIFACT
        return artifact
    if id in LABELS:
        raise UnavailableError(f"{id} ({LABELS[id]}) is not available in this version (reproduce list shows what is)")
    raise UsageError(f"unknown artifact {id!r}{did_you_mean(id, (*known, *commands))} (reproduce list shows all)")

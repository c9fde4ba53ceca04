"""What is recomputed where a configuration leaves it open (`recompute="auto"`): no more than memory needs."""

from dataclasses import replace

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.peak_memory import peak_memory


def least_recomputation(config: TrainingConfig, model: CostModel) -> tuple[TrainingConfig, dict[str, int]]:
    """The configuration with the least recomputation that fits a GPU's memory, and the peak in bytes of each tried.

    If nothing fits, whole layers are recomputed. Unless `recompute` is 'auto', nothing is tried.
    """
    peaks: dict[str, int] = {}
    for recompute in _choices(config):
        config = replace(config, parallel=replace(config.parallel, recompute=recompute))
        peaks[recompute] = peak_memory(config, model)
        if peaks[recompute] <= model.cluster.usable_memory:
            break
    return config, peaks


def _choices(config: TrainingConfig) -> tuple[str, ...]:
    """What 'auto' may be, the fastest first; selective recomputation has no effect where no scores are written."""
    parallel = config.parallel
    if parallel.recompute != "auto":
        return ()
    if parallel.distribute_checkpointed_activations:
        return ("full",)
    choices = ("none", "selective", "full") if config.writes_scores() else ("none", "full")
    return choices[:-1] if parallel.offloaded_modules else choices

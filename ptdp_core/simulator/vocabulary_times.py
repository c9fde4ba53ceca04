"""The seconds of the passes and collectives of a vocabulary that all pipeline ranks share."""

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import FP32, table_elements, vocabulary_exchanges
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import FP32_BYTES
from ptdp_core.simulator.vocabulary import blocks_of


def pass_seconds(model: CostModel, config: TrainingConfig) -> dict[str, float]:
    """Seconds of a rank's passes for a microbatch, by kind.

    G has no product, and so adds its dense gradient to the sum; T does inside its product, if the program does.
    """
    group, table = model.group(config.parallel, "tp"), table_elements(config)
    return {
        kind: model.seconds(model._accumulated(config, work, table, 1) if kind in "TG" else work, group)
        for kind, work in blocks_of(config, model.software.fused_cross_entropy).passes.items()
    }


def collective_seconds(model: CostModel, config: TrainingConfig) -> dict[str, float]:
    """Seconds of the collectives over a pipeline's ranks, by the kind of the pass before each (`SHARED`).

    A broadcast and a sum on one rank go around once, as an all-gather does; vocab-2 sums what it has corrected, once
    all have what S knows. Other messages that are on the way at the same time are not counted.
    """
    parallel = config.parallel
    group = model.group(parallel, "pp")
    seconds = {}
    for kind, call in vocabulary_exchanges(config).items():
        width = FP32_BYTES if call.element == FP32 else model.cluster.element_bytes
        seconds[kind] = model.network.one_way(group, float(width * call.elements))
    if parallel.vocabulary == "vocab-2":
        seconds["T"] += seconds["S"]
    return seconds

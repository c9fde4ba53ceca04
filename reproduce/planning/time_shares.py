"""What a GPU spends an iteration's time on, by use, and how two configurations differ in it."""

from collections.abc import Iterable
from math import fsum

from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.parts import Work
from ptdp_core.layout import layers_by_kind
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import cost_model
from ptdp_core.simulator.estimate import Estimate
from ptdp_core.simulator.waits import context_waits


def time_shares(estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """The seconds of the iteration by use, mean over pipeline ranks. They add up to the iteration.

    `Estimate.phase_times`, with the collectives of tensor parallelism (Section 2.3) taken out of their passes.
    """
    config, phases = estimate.config, estimate.phase_times
    model, parallel = config.model, config.parallel
    costs = cost_model(cluster, parallel.n)
    group = costs.group(parallel, "tp")
    passed = parallel.m / parallel.p  # how often a GPU passes a microbatch through a layer, mean over pipeline ranks

    def communicates(works: Iterable[tuple[float, Work]]) -> float:
        return passed * fsum(number * costs.communication(work, group) for number, work in works)

    (numbers,) = layers_by_kind([range(model.all_layers)], model.kind_of_layers)
    layers = [(number, layer_of(config, kind)) for number, kind in zip(numbers, model.layer_kinds, strict=True)]
    forward = communicates((number, layer.forward) for number, layer in layers)
    backward = communicates((number, layer.backward) for number, layer in layers)
    both = ends(config.local_model, LayerRun.of(parallel))
    again = forward if parallel.recompute == "full" else 0.0
    tensor = forward + backward + communicates((1, work) for end in both for work in (end.forward, end.backward))
    of_kinds = zip(numbers, model.layer_kinds, strict=True)
    by_kind = [[number * passed * each for each in context_waits(costs, config, kind)] for number, kind in of_kinds]
    *waits, waits_again = map(fsum, zip(*by_kind, strict=True))
    context = fsum(waits)
    stages = costs.stages(config)
    exchange = passed * fsum(2 * stage.exchange - stage.overlapped_exchange for stage in stages)
    exchange_again = passed * fsum(stage.recomputed_exchange for stage in stages)
    passes = phases["forward"] + phases["backward"] + phases["embedding_and_logits"]
    return {
        "computation": passes - tensor - context - exchange,
        "recomputation": phases["recompute"] - again - waits_again - exchange_again,
        "tensor-parallel communication": tensor + again,
        "context-parallel communication": context + waits_again,
        "expert-parallel communication": exchange + exchange_again,
        "pipeline communication": phases["pipeline_communication"],
        "bubble": phases["bubble"],
        "data-parallel communication": phases["data_parallel"],
        "optimizer": phases["optimizer"],
        "host": phases["host"],
    }


def time_differences(one: Estimate, other: Estimate, cluster: Cluster) -> dict[str, float]:
    """Seconds by which `one` spends more than `other` on each of `time_shares`, the largest difference first."""
    here, there = time_shares(one, cluster), time_shares(other, cluster)
    differences = {use: here[use] - there[use] for use in here}
    return dict(sorted(differences.items(), key=lambda item: -abs(item[1])))

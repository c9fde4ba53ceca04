"""Further metrics of simulated points: time in tensor-parallel communication, GEMM rates.

`simulate` keeps tensor-parallel collectives inside the times of forward and backward passes, where they are spent;
here the same cost model is asked for them alone. Mean over pipeline ranks, as all times of a point.
"""

from collections.abc import Mapping
from math import fsum

from ptdp_core.layers.blocks import LayerRun, block, ends
from ptdp_core.simulator import Cluster, Estimate
from ptdp_core.simulator.costs import cost_model
from reproduce.experiment import quantities as q
from reproduce.experiment.sweep import Point


def kernel_metrics(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, float]:
    """Seconds of tensor-parallel collectives in an iteration, and FLOP/s inside the GEMMs of a transformer layer."""
    model, parallel = estimate.config.model, estimate.config.parallel
    costs = cost_model(cluster, parallel.n)
    group = costs.group(parallel, "tp")
    run = LayerRun(parallel.b, parallel.t, parallel.sequence_parallel)
    layer = block(model, run, model.usual_kind)
    forward, backward = layer.forward, layer.backward
    passes = 2 if parallel.recompute == "full" else 1
    a_microbatch = model.layers * (passes * costs.communication(forward, group) + costs.communication(backward, group))
    a_microbatch += fsum(
        costs.communication(work, group) for end in ends(model, run) for work in (end.forward, end.backward)
    )
    gemms = forward.gemms * passes + backward.gemms
    flops = sum(2 * M * N * K * batch for M, N, K, batch in gemms)
    return {
        q.TENSOR_TIME.name: a_microbatch * parallel.m / parallel.p,
        q.GEMM_RATE.name: flops / fsum(costs.kernels.gemm(*gemm) for gemm in gemms),
    }

"""Further metrics of simulated points: FLOP/s of the model alone, time in tensor-parallel communication, GEMM rates.

`simulate` keeps tensor-parallel all-reduces inside the times of forward and backward passes, where they are spent;
here the same cost model is asked for them alone. Mean over pipeline ranks, as all times of a point.
"""

from collections.abc import Mapping
from math import fsum

from benchmarks.records import Metric
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from ptdp_core.simulator import Cluster, Estimate, operators
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.network import tensor_group
from reproduce.experiment import quantities as q
from reproduce.experiment.sweep import Point


def model_throughput(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, Metric]:
    """FLOP/s per GPU of the model alone: what eq. (3) counts for recomputed forward passes is left out."""
    config = estimate.config
    flops = model_flops_per_iteration(config.model, config.parallel.B) / config.parallel.n
    return {q.MODEL_THROUGHPUT.name: Metric(flops / estimate.iteration_time, "FLOP/s", "simulated")}


def kernel_metrics(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, Metric]:
    """Seconds of tensor-parallel all-reduces in an iteration, and FLOP/s inside the GEMMs of a transformer layer."""
    model, parallel = estimate.config.model, estimate.config.parallel
    costs, b, t = CostModel(cluster), parallel.b, parallel.t
    group = tensor_group(t, cluster.gpus_per_node)

    def reductions(work: operators.Work) -> float:
        return fsum(costs.network.all_reduce(group, size) for size in work.all_reduce_bytes)

    forward, backward = operators.layer_forward(model, b, t), operators.layer_backward(model, b, t)
    passes = 2 if parallel.recompute == "full" else 1
    ends = (operators.embedding_forward, operators.logits_forward, operators.logits_backward)
    a_microbatch = model.layers * (passes * reductions(forward) + reductions(backward))
    a_microbatch += fsum(reductions(work(model, b, t)) for work in ends)
    gemms = forward.gemms * passes + backward.gemms
    flops = sum(2 * M * N * K * batch for M, N, K, batch in gemms)
    return {
        q.TENSOR_TIME.name: Metric(a_microbatch * parallel.m / parallel.p, "s", "simulated"),
        q.GEMM_RATE.name: Metric(flops / fsum(costs.kernels.gemm(*gemm) for gemm in gemms), "FLOP/s", "simulated"),
    }


def scaling_metrics(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, Metric]:
    """`kernel_metrics`, and what Table 1 prints besides: share of the peak, and FLOP/s of all GPUs together."""
    parallel = estimate.config.parallel
    aggregate = flops_per_iteration(estimate.config.model, parallel.B) / estimate.iteration_time
    return {
        **kernel_metrics(point, estimate, cluster),
        q.SHARE_OF_PEAK.name: Metric(estimate.throughput_per_gpu / cluster.peak_flops, "1", "simulated"),
        q.AGGREGATE_THROUGHPUT.name: Metric(aggregate, "FLOP/s", "simulated"),
    }

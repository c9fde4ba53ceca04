"""Fidelity 'emulated': the engine in real time on this machine, on virtual accelerators and shaped links.

Every point has, beside what was clocked, the simulator's prediction for exactly the emulated configuration: the
metrics `predicted_*`, whose origin is 'simulated'.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import provenance
from benchmarks.records import Metric
from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import flops_per_iteration
from ptdp_core.simulator import Cluster
from reproduce.artifact import Artifact, Point, Scalar
from reproduce.errors import UnavailableError
from reproduce.fidelities.evaluator import Evaluator, Outcome, sources_digest
from reproduce.fidelities.simulated import GPUS_PER_NODE, complete, open_cluster

if TYPE_CHECKING:
    from ptdp_core.emulation import Emulation

SOURCES = ("ptdp_core", "kernels")


@dataclass(frozen=True)
class Emulated(Evaluator):
    """Runs points in emulation; the parameter `gpus_per_node` says how many ranks share an emulated node."""

    cluster: Cluster | None = None

    def depends_on(self) -> Mapping[str, Any]:
        """Wall-clock time is this machine's."""
        return {"host": asdict(provenance.host())}

    def parameters(self, point: Point) -> Mapping[str, Scalar]:
        """The point's parameters with the training configuration's defaults filled in."""
        return complete(point)

    def outcome(self, point: Point) -> Outcome:
        """Emulate the point."""
        from ptdp_core.emulation import emulate

        assert self.cluster is not None
        size = point.parameters.get(GPUS_PER_NODE, self.cluster.gpus_per_node)
        config = TrainingConfig.from_plain(point.parameters)
        emulation = emulate(config, self.cluster, gpus_per_node=int(size or 1))
        further = self.artifact.emulated(point, emulation) if self.artifact.emulated else {}
        return "ok", None, {**emulated_metrics(config, emulation), **further}


def make(artifact: Artifact, cluster: str, debug: bool) -> Emulated:
    """What emulates `artifact`. Raises `UnavailableError` where this machine cannot, `UsageError` for no cluster."""
    from ptdp_core.emulation import requirements

    model, reference = open_cluster(cluster)
    if missing := requirements():
        raise UnavailableError(f"this machine cannot emulate: {'; '.join(missing)} (reproduce doctor says more)")
    return Emulated(artifact, "emulated", digest(artifact), reference, debug, model)


def digest(artifact: Artifact) -> str:
    """A digest of the sources that emulated numbers of `artifact` come from."""
    return sources_digest(SOURCES, artifact.emulated, sys.modules[__name__])


def emulated_metrics(config: TrainingConfig, emulation: "Emulation") -> dict[str, Metric]:
    """What an emulated point keeps: the clocked iteration, and what was predicted for it, in base units."""
    seconds, parallel, predicted = emulation.iteration_s, config.parallel, emulation.prediction
    flops = flops_per_iteration(config.model, parallel.B) / parallel.n
    times = tuple(emulation.samples_s)
    clocked = {
        "throughput_per_gpu": Metric(flops / seconds, "FLOP/s", "emulated", tuple(flops / time for time in times)),
        "sequences_per_s": Metric(parallel.B / seconds, "sequences/s", "emulated"),
        "iteration_time": Metric(seconds, "s", "emulated", times),
        "bubble_fraction": Metric(emulation.bubble_fraction, "1", "emulated"),
        "peak_stash": Metric(emulation.peak_stash, "count", "emulated"),
        "order_as_scheduled": Metric(int(emulation.order_ok), "1", "emulated"),
        **{f"{use}_traffic": Metric(sent, "B", "emulated") for use, sent in emulation.link_bytes.items()},
    }
    expected = {
        "predicted_throughput_per_gpu": Metric(predicted.flops_per_gpu, "FLOP/s", "simulated"),
        "predicted_iteration_time": Metric(predicted.iteration_s, "s", "simulated"),
        "predicted_bubble_fraction": Metric(predicted.bubble_fraction, "1", "simulated"),
    }
    return {**clocked, **expected}

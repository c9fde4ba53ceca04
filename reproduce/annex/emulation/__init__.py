"""Emulation: the real engine, in real time on one Linux machine, on virtual accelerators and emulated nodes.

    from reproduce.annex.emulation import emulate, requirements

    if not requirements():                       # what this machine lacks, a sentence each
        config = TrainingConfig(ModelConfig(8, 12288, 96), ParallelConfig(p=4, t=2, b=1, B=8))
        emulation = emulate(config, load_cluster("selene"), gpus_per_node=2)
        emulation.iteration_time, emulation.prediction.iteration_time, emulation.bubble_fraction

What is real: one process per GPU; the engine's executor over the lowered schedule, its boundary messages, the
all-gather of scatter/gather, its gradient buckets, their data-parallel reduction and the exchange of the tied
embedding; sockets, over links that the kernel shapes (`fabric.py`). What is modelled, by sleeping: a pass's compute,
with what happens inside a node during it (tensor-parallel all-reduces, the putting together of a received tensor); a
data-parallel reduction inside a node, which also runs, in the time that NVLink would take; optimizer and host.
Tensor-parallel all-reduces between nodes really run, those of a pass as one of their summed size; so does each
all-to-all of tokens to their experts and back, which inside a node takes the modelled time.

Message sizes and link rates are `plan.SHRINK` times smaller than the cluster's, times are not: an iteration takes as
long as on the cluster, and costs next to no CPU time. Every rank has one link between nodes, of the cluster's
`hca_bandwidth` shrunk. What differs from the cluster: a single message gets all of it (a pair of GPUs does not); rings
use one HCA of a node, as gloo does; an exchange costs what it costs here (some 0.5 ms for 4 ranks, 2 to 4 ms for 16, on
two cores) in place of `exchange_host_time`. These are measured on the emulated links before the run, and the simulator
predicts that machine: nothing of the run itself goes into `prediction`.

    plan          times and sizes of a configuration, for the ranks      network, fabric   the emulated nodes
    calibration   what the links do                                      prediction        the simulator on that
    worker        what a rank does                                       rank_report, result  what it brings back
    run           `emulate`                                              machine           `requirements`
"""

from reproduce.annex.emulation.machine import requirements
from reproduce.annex.emulation.network import EmulationError, LinkError, NetworkUnavailableError
from reproduce.annex.emulation.prediction import LinkRate
from reproduce.annex.emulation.result import Emulation
from reproduce.annex.emulation.run import emulate

__all__ = [
    "Emulation",
    "EmulationError",
    "LinkError",
    "LinkRate",
    "NetworkUnavailableError",
    "emulate",
    "requirements",
]

"""The simulator of one training iteration of a configuration on a cluster, from its mechanisms (imports no torch).

- `simulate.py`: `simulate(config, cluster) -> Estimate`; `estimate.py`: the `Estimate`
- `clusters/*.toml`: every number of the hardware model; `cluster.py` reads them
- `software.py`: optional features of a training program that the paper's code does not have
- `kernels.py` and `network.py`: what the work of a GPU costs that `ptdp_core/layers` counts (GEMMs, bytes, all-reduces)
- `costs.py`: times of layers, stages (`stage_times.py`) and messages of one configuration; `waits.py`: what layers wait
  for, exchanges of context ranks and of experts, scans; `step.py`: what is done once, after it; `memory.py`: bytes
- `executor.py`: event-driven execution of a lowered schedule; `steady_state.py`: the same for any length, exactly;
  `native.c` and `native.py`: both compiled, where they could be

    estimate = simulate(TrainingConfig(ModelConfig(...), ParallelConfig(...)), load_cluster("selene"))
"""

from ptdp_core.simulator.cluster import Cluster, ClusterParameter, cluster_path, load_cluster, read_parameters
from ptdp_core.simulator.estimate import BUBBLE_CAUSES, PHASES, Estimate
from ptdp_core.simulator.simulate import simulate
from ptdp_core.simulator.software import PAPER, Software, software_of

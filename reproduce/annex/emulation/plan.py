"""The plan of an emulation: a configuration's times and sizes by the cost model, in plain numbers for the ranks."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import (
    Boundary,
    chunk_layers,
    layer_passes,
    node_of,
    over_parts,
    rank_sizes,
    stage_passes,
    table_elements,
)
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel, cost_model
from ptdp_core.simulator.stage_times import StageTimes
from ptdp_core.simulator.step import (
    collective_seconds,
    first_and_last,
    gradient_copies,
    gradient_reduction,
    optimizer_step,
    reduced_bytes,
)
from ptdp_core.simulator.waits import expert_exchange

# Messages and the rates of links between nodes are smaller than the cluster's by this factor; compute times are not. So
# a message takes as long as on the cluster, and 16 ranks are no load for two cores.
SHRINK = 4096
# With buckets that overlap, every linear layer's gradient is a piece of its own, far larger than a bucket of PyTorch's.
# So it is in models with experts: of a layer that has them, two pieces are attention's and two the experts'.
LINEARS_PER_LAYER = 4
UNLIMITED = 1e30  # B/s
ELEMENT_BYTES = 4  # per element of the tensors that are sent here: fp32, which gloo adds fastest


def shrunk(cluster_bytes: float, multiple: int = 1) -> int:
    """The elements that stand here for `cluster_bytes` bytes of the cluster: at least one, a multiple of `multiple`."""
    return max(1, round(cluster_bytes / (SHRINK * ELEMENT_BYTES * multiple))) * multiple


class Piece(NamedTuple):
    """A part of a chunk: the elements of its gradient, whether of experts, and whether an all-to-all comes after it.

    In the backward pass the all-to-all comes before it.
    """

    elements: int
    of_experts: bool = False
    exchanged: bool = False


class AllToAll(NamedTuple):
    """Every all-to-all of tokens to their experts, or back: the elements that a rank holds, or 0 and the modelled time.

    Inside a node it takes the modelled time; where the expert-parallel group spans nodes it really runs. `repeated`
    says that recomputation repeats those of the forward pass in the backward pass.
    """

    elements: int = 0
    seconds: float = 0.0
    repeated: bool = False


NO_EXPERTS = AllToAll()


@dataclass(frozen=True)
class StagePlan:
    """One stage on its virtual accelerator: seconds of compute and elements all-reduced over the tensor group.

    An all-gather or a reduce-scatter counts as half an all-reduce. All-to-alls of experts are not in these
    (`EmulationPlan.exchange`).
    """

    forward: float
    backward: float
    weight_gradient: float
    reduced_forward: int
    reduced_backward: int


@dataclass(frozen=True)
class RankPlan:
    """The plan of a pipeline rank beyond its stages: seconds after the flush, and the pieces of each chunk.

    `reduce` is the modelled time of the data-parallel reduction inside a node (None where it spans nodes, as it then
    runs on the links), `copies` the time of the copies around it, and of the sum that sequence parallelism needs.
    """

    pieces: tuple[tuple[Piece, ...], ...]
    tied: int
    reduce: float | None
    copies: float
    optimizer: float


@dataclass(frozen=True)
class EmulationPlan:
    """An emulated configuration; see `make_plan`."""

    config: TrainingConfig
    gpus_per_node: int
    boundary: Boundary
    gather: float | None
    exchange: AllToAll
    stages: tuple[StagePlan, ...]
    ranks: tuple[RankPlan, ...]
    host: float
    iterations: int
    warmup: int

    @property
    def tensor_spans_nodes(self) -> bool:
        """Whether tensor-parallel collectives go between nodes, and so really run."""
        return self.config.parallel.t > self.gpus_per_node

    @property
    def experts_span_nodes(self) -> bool:
        """Whether tokens go to experts on other nodes, and so really travel."""
        return self.exchange.elements > 0

    @property
    def data_spans_nodes(self) -> bool:
        """Whether data-parallel groups have ranks on several nodes."""
        return self.config.parallel.d > 1 and self.config.parallel.t * self.config.parallel.d > self.gpus_per_node

    def between_nodes(self, rank: int, other: int) -> bool:
        """Whether two ranks are on different nodes."""
        return node_of(rank, self.gpus_per_node) != node_of(other, self.gpus_per_node)


def make_plan(config: TrainingConfig, cluster: Cluster, iterations: int, warmup: int) -> EmulationPlan:
    """The times of `config` on `cluster`, whose `gpus_per_node` counts, and its shrunk sizes."""
    parallel = config.parallel
    model = cost_model(cluster, parallel.n)
    spans = parallel.t > cluster.gpus_per_node
    computing = cost_model(_without_tensor_communication(cluster, parallel.t), parallel.n) if spans else model
    boundary = Boundary.of(config)
    boundary_bytes = cluster.element_bytes * boundary.elements
    element_bytes = cluster.element_bytes if spans else 0
    stages = computing.stages(config)
    return EmulationPlan(
        config=config,
        gpus_per_node=cluster.gpus_per_node,
        boundary=replace(boundary, shape=(shrunk(boundary_bytes, parallel.t),)),
        gather=None if spans else model.gather(config, Boundary.of(config).gather),
        exchange=_exchange(config, model),
        stages=tuple(_stage(config, i, stage, element_bytes) for i, stage in enumerate(stages)),
        ranks=tuple(_rank(config, model, rank) for rank in range(parallel.p)),
        host=cluster.iteration_host_time,
        iterations=iterations,
        warmup=warmup,
    )


def _without_tensor_communication(cluster: Cluster, t: int) -> Cluster:
    """The cluster, but with tensor-parallel collectives that take no time, because they are run and not modelled."""
    free = {f"nvlink_latency_{k}": 0.0 for k in (2, 4, 8)} | {f"nvlink_bandwidth_{k}": UNLIMITED for k in (2, 4, 8)}
    return replace(cluster, gpus_per_node=max(t, cluster.gpus_per_node), **free)  # type: ignore[arg-type]


def _stage(config: TrainingConfig, index: int, times: StageTimes, element_bytes: int) -> StagePlan:
    """The plan of a stage. `element_bytes` are those of an element of the collectives, 0 if none really runs."""
    reduced = (sum(call.elements * call.rounds for call in calls) / 2 for calls in stage_passes(config, index))
    sizes = [shrunk(element_bytes * elements) if element_bytes else 0 for elements in reduced]
    forward, backward = times.forward - times.exchange, times.backward - times.exchange - times.recomputed_exchange
    return StagePlan(forward, backward, times.weight_gradient, *sizes)


def _exchange(config: TrainingConfig, model: CostModel) -> AllToAll:
    parallel, calls = config.parallel, layer_passes(config, "ep").forward
    if not calls:
        return NO_EXPERTS
    repeated = parallel.recompute == "full"
    if model.group(parallel, "ep").nodes == 1:
        return AllToAll(seconds=expert_exchange(model, config) / len(calls), repeated=repeated)
    sent = model.cluster.element_bytes * calls[0].elements
    return AllToAll(elements=shrunk(sent, parallel.e), repeated=repeated)


def _rank(config: TrainingConfig, model: CostModel, rank: int) -> RankPlan:
    parallel = config.parallel
    sizes = rank_sizes(config)[rank]
    parameters, of_experts = sizes.parameters, sizes.experts
    group = model.group(parallel, "dp")
    _, last_backward = first_and_last(config, model.stages(config), rank)
    copies = gradient_copies(model, config, parameters)
    parts = [call for call in over_parts(config, rank, sizes) if call.group == "tp" and parallel.sequence_parallel]
    summed = sum(collective_seconds(model, config, call) for call in parts)
    exposed = gradient_reduction(model, config, parameters, last_backward, of_experts) - copies
    table = table_elements(config) if rank in (config.tied_ranks or ()) else 0
    dense, expert, tied = (
        reduced_bytes(model, config) * elements for elements in (parameters - table - of_experts, of_experts, table)
    )
    return RankPlan(
        pieces=_pieces(config, rank, dense, expert),
        tied=shrunk(tied) if table else 0,
        reduce=exposed if group.nodes == 1 else None,
        copies=copies + summed,
        optimizer=optimizer_step(model, config, parameters, of_experts),
    )


def _pieces(config: TrainingConfig, rank: int, dense: float, expert: float) -> tuple[tuple[Piece, ...], ...]:
    """The pieces of each chunk of a rank with so many bytes of gradients, without those of its experts, and of them."""
    model, parallel = config.model, config.parallel
    chunks = [
        [model.layer_kind(layer).experts for layer in layers]
        for layers in chunk_layers(model.layers, parallel.placement, rank, parallel.pipeline_layout)
    ]
    if not any(chunks):  # an end of the model alone: its gradients count as a layer's
        chunks[0 if rank == parallel.placement.first else -1] = [False]
    dense /= sum(map(len, chunks))
    if parallel.data_parallel != "torch" and not model.experts:
        return tuple((Piece(shrunk(dense * len(chunk))),) for chunk in chunks)
    expert /= max(1, sum(map(sum, chunks)))
    half, exchanged = LINEARS_PER_LAYER // 2, parallel.e > 1
    plain = (Piece(shrunk(dense / LINEARS_PER_LAYER)),) * LINEARS_PER_LAYER
    attention, own = Piece(shrunk(dense / half)), Piece(shrunk(expert / half), of_experts=True)
    with_experts = tuple(part for piece in (attention, own) for part in (piece, piece._replace(exchanged=exchanged)))
    return tuple(
        tuple(part for has in chunk for part in (with_experts if has else plain)) or (Piece(1),) for chunk in chunks
    )

"""Where everything is and who sends what. The engine, the simulator and Figures 2, 5 and 9 are built on this package.

    grid            `RankGrid`: the p*t*d ranks and their groups (Section 3.1)
    stages          the layers of each stage, and of each pipeline rank's chunks (Section 2.2.2)
    parameters      every parameter by name, and the `ShardSpec` of a tensor rank's part (Section 2.3)
    communication   collectives of a layer and of a step, and messages between stages (Sections 2.3, 3.2 and 4.1)

Standard library only; it knows the configuration and nothing of torch, times or bytes.
"""

from ptdp_core.layout.communication import (
    ACTIVATION,
    ALL_REDUCE,
    ALL_TO_ALL,
    FP32,
    GRADIENT,
    WEIGHT,
    Boundary,
    Collective,
    PassCollectives,
    Transfer,
    all_reduces,
    boundary_transfers,
    embedding_passes,
    expert_passes,
    gather_transfers,
    layer_passes,
    logits_passes,
    recomputation_gathers,
    stage_passes,
    step_collectives,
)
from ptdp_core.layout.grid import Coordinates, RankGrid, node_of
from ptdp_core.layout.parameters import (
    COLUMN,
    OUTPUT,
    ROW,
    WORD_EMBEDDING,
    Parameter,
    ShardSpec,
    chunk_parameters,
    elements_held,
    embedding_parameters,
    layer_parameters,
    rank_elements,
    table_elements,
    whole_elements,
)
from ptdp_core.layout.stages import RankKinds, chunk_layers, rank_kinds, stage_layers

__all__ = [
    "ACTIVATION",
    "ALL_REDUCE",
    "ALL_TO_ALL",
    "COLUMN",
    "FP32",
    "GRADIENT",
    "OUTPUT",
    "ROW",
    "WEIGHT",
    "WORD_EMBEDDING",
    "Boundary",
    "Collective",
    "Coordinates",
    "Parameter",
    "PassCollectives",
    "RankGrid",
    "RankKinds",
    "ShardSpec",
    "Transfer",
    "all_reduces",
    "boundary_transfers",
    "chunk_layers",
    "chunk_parameters",
    "elements_held",
    "embedding_parameters",
    "embedding_passes",
    "expert_passes",
    "gather_transfers",
    "layer_parameters",
    "layer_passes",
    "logits_passes",
    "node_of",
    "rank_elements",
    "rank_kinds",
    "recomputation_gathers",
    "stage_layers",
    "stage_passes",
    "step_collectives",
    "table_elements",
    "whole_elements",
]

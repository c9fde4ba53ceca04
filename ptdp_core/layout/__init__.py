"""Where everything is and who sends what. The engine, the simulator and Figures 2, 5 and 9 are built on this package.

    grid            `RankGrid`: the p*t*c*d ranks and their groups (Section 3.1)
    stages          the layers of each stage, and of each pipeline rank's chunks (Section 2.2.2); the parameters of each
                    pipeline rank: those of its layers, by name and by number (Section 2.3)
    communication   collectives of a stage and of a step, and messages between stages (Sections 2.3, 3.2 and 4.1)

What a layer is made of, `layers` says. Standard library only; nothing of torch, times or bytes.
"""

from ptdp_core.layers.blocks import OUTPUT, WORD_EMBEDDING, end_parameters, layer_parameters
from ptdp_core.layers.parts import (
    ACTIVATION,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLUMN,
    FP32,
    GRADIENT,
    ROW,
    WEIGHT,
    Collective,
    Parameter,
    PassCollectives,
    ShardSpec,
)
from ptdp_core.layout.communication import (
    Boundary,
    Transfer,
    all_reduces,
    boundary_transfers,
    gather_transfers,
    kind_collectives,
    layer_passes,
    over_parts,
    over_replicas,
    recomputation_gathers,
    stage_passes,
    step_collectives,
    trained,
    vocabulary_exchanges,
)
from ptdp_core.layout.grid import RankGrid, node_of
from ptdp_core.layout.stages import (
    RankKinds,
    RankSizes,
    chunk_layers,
    chunk_parameters,
    layers_by_kind,
    rank_elements,
    rank_kinds,
    rank_sizes,
    stage_kinds,
    stage_layers,
    table_elements,
    vocabulary_rows,
    vocabulary_tables,
)

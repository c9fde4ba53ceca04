"""Section `layout`: what each stage and rank holds where the stages are uneven, which no other section's points are."""

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layout import rank_elements, stage_layers
from reproduce.annex.exact.entries import Entry, Section

# Layers that the stages do not divide, also on a V of stages and with fewer spare layers than stages that give one up.
CASES = (
    TrainingConfig(ModelConfig(10, 1024, 16), ParallelConfig(p=4, B=8)),
    TrainingConfig(ModelConfig(9, 1024, 16), ParallelConfig(p=4, t=2, B=8)),
    TrainingConfig(ModelConfig(13, 1024, 16), ParallelConfig(p=4, v=2, B=8)),
    TrainingConfig(ModelConfig(11, 1024, 16), ParallelConfig(p=3, v=2, B=6, schedule="zb-v")),
    TrainingConfig(ModelConfig(126, 16384, 128), ParallelConfig(p=16, t=8, B=32)),
    TrainingConfig(ModelConfig(6, 1024, 16), ParallelConfig(p=4, B=8, pipeline_layout="Et*2|t*3|t|L")),
    TrainingConfig(
        ModelConfig(6, 1024, 16, experts=8, experts_per_token=2, expert_ffn_hidden=512, dense_layers=1),
        ParallelConfig(p=4, t=2, d=4, e=4, etp=1, sequence_parallel=True, B=8),
    ),
)


def collect() -> Section:
    """The layers by stage and the parameters on one GPU by pipeline rank of each case."""
    return {_name(case): _entry(case) for case in CASES}


def _name(case: TrainingConfig) -> str:
    parallel = case.parallel
    more = (
        f" experts={case.model.experts} e={parallel.e}" if parallel.e > 1 else f" {parallel.pipeline_layout}".rstrip()
    )
    return f"layers={case.model.layers} p={parallel.p} t={parallel.t} v={parallel.v} schedule={parallel.schedule}{more}"


def _entry(case: TrainingConfig) -> Entry:
    parallel = case.parallel
    stages = stage_layers(case.model.layers, parallel.p * parallel.v, parallel.pipeline_layout)
    return Entry(
        {
            "work": {
                "layers by stage of stages.stage_layers": " ".join(str(len(stage)) for stage in stages),
                "parameters by rank of parameters.rank_elements": list(rank_elements(case)),
            }
        }
    )

"""Section `layout`: what each stage and rank holds where the stages are uneven, which no other section's points are."""

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import rank_elements, stage_layers
from reproduce.annex.exact.entries import Entry, Section
from reproduce.annex.exact.simulated import TABLES, configuration


def collect() -> Section:
    """The layers by stage and the parameters on one GPU by pipeline rank of each case."""
    return {label: _entry(configuration(row)) for label, row in TABLES["layout"].items()}


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

"""Claims on the paper's own numbers, above all the model sizes that it prints, held against eq. (2)."""

from dataclasses import replace

import pytest

from reproduce.experiment import catalog
from reproduce.experiment.judging import judge
from reproduce.experiment.results import Results
from reproduce.experiment.sized import Sized, rounds_to


@pytest.mark.parametrize(
    ("printed", "count", "expected"),
    [
        ("5.9", 5.866e9, True),
        ("145", 145.62e9, False),  # cut off
        ("146", 145.62e9, True),
        ("162.2", 162.16e9, True),
        ("161", 162.16e9, False),
        ("15", 16.19e9, False),
    ],
)
def test_a_count_rounds_to_what_is_printed(printed, count, expected):
    assert rounds_to(printed, count) is expected


@pytest.mark.parametrize(
    ("id", "claim", "verdict"),
    [
        ("fig_pipeline_weak_scaling", "model_sizes", "holds"),
        ("fig_tensor_vs_pipeline", "model_size_in_caption", "holds"),
        ("fig_tensor_vs_pipeline", "model_size_in_text", "paper inconsistent"),
        ("fig_pipeline_vs_data", "model_size", "holds"),
        ("fig_tensor_vs_data", "model_size", "holds"),
        ("fig_microbatch", "model_size", "holds"),
        ("fig_recomputation", "model_size", "paper inconsistent"),
        ("fig_pipeline_vs_data", "three_batch_sizes", "paper inconsistent"),
        ("fig_zero3", "fixed_batch_sizes", "paper inconsistent"),
        ("table_training_time", "about_40_months", "holds"),
        ("table_training_time", "much_larger", "paper inconsistent"),
        ("table_weak_scaling", "interleaved_everywhere", "contradicted"),
        ("table_weak_scaling", "batch_and_gpus_grow", "paper inconsistent"),
        ("table_weak_scaling", "aggregate_is_the_product", "holds"),
        ("table_weak_scaling", "one_billion_to_one_trillion", "paper inconsistent"),
        ("table_zero3", "too_large_for_a_server", "holds"),
    ],
)
def test_what_the_papers_own_numbers_say(id, claim, verdict, results_for):
    artifact = catalog.load(id)
    judged = judge(next(c for c in artifact.claims if c.id == claim), results_for(artifact, {}))
    assert judged.verdict == verdict


def test_a_point_that_is_not_there_makes_it_inconclusive(small):
    claim = replace(small.claims[-1], judge=Sized({"1": "none"}))
    assert judge(claim, Results((), "simulated")).verdict == "inconclusive"

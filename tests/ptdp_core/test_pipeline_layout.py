"""Layout strings: what Megatron-Core's own parser makes of them, there and back, and what is said of wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.pipeline_layout import layout_of, stage_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        # The examples of Megatron-Core's parse_str_to_list, without the layer for multi-token prediction.
        ("Ettt|(tt|)*29,L", [3, *[2] * 29, 0]),
        ("Et*3|(tt|)*30L", [3, *[2] * 30, 0]),
        ("Ett(tt|t|)*2,tL", [4, 1, 2, 1, 1]),
        ("E(|tt)*2,tL", [0, 2, 3]),
        ("E|t|*3L", [0, 1, 0, 0, 0]),
        (" E t |((t|)*2 tt|)*3 L", [1, *[1, 1, 2] * 3, 0]),
        ("EtL", [1]),
    ],
)
def test_repetitions_and_stages(text, sizes):
    assert list(stage_sizes(text)) == sizes


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40).map(tuple))
def test_a_written_layout_reads_as_its_sizes(sizes):
    assert stage_sizes(layout_of(sizes)) == sizes


def test_a_layout_is_a_field_of_the_configuration():
    config = TrainingConfig(ModelConfig(126, 128, 8), ParallelConfig(p=16, v=8, B=16, pipeline_layout="E|(t|)*126L"))
    assert config.to_plain()["pipeline_layout"] == "E|(t|)*126L"
    assert TrainingConfig.from_plain(config.to_plain()) == config
    assert config.layers_per_chunk == 1

"""Layout strings: what Megatron-Core's own parser makes of them, there and back, and what is said of wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Et|xL", "has 'x' where none belongs; needs letters E, t, m, L, bars, and"),
        ("Et(t|L", r"has '\(' where none belongs"),
        ("Et*2*2|L", r"has '\*' where none belongs"),
        ("Etm|tL", "has an m elsewhere than behind the last layer; needs each m in the last stage, before L"),
        ("Et|mtL", "has an m elsewhere than behind the last layer"),
        ("t|L", "does not begin with the embedding and end with the loss; needs one E, first, and one L, last"),
        ("Et|EtL", "does not begin with the embedding"),
        ("|EtL", "has an empty stage at an end; needs E in the first stage and L in the last"),
        ("Et*99999999|L", "repeats something 99999999 times; needs at most 65536"),
        ("E((t*999)*999)*999|L", "repeats something 999 times"),
    ],
)
def test_what_is_no_layout_is_refused_in_a_line(text, problem):
    with pytest.raises(ConfigurationError, match=rf"^pipeline_layout=.* {problem}.*; try '.*'$"):
        stage_sizes(text)


def test_a_layout_is_a_field_of_the_configuration():
    config = TrainingConfig(ModelConfig(126, 128, 8), ParallelConfig(p=16, v=8, B=16, pipeline_layout="E|(t|)*126L"))
    assert config.to_plain()["pipeline_layout"] == "E|(t|)*126L"
    assert TrainingConfig.from_plain(config.to_plain()) == config
    assert config.layers_per_chunk == 1

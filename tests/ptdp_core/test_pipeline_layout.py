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


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"pipeline_layout": "Et*4|t*4L"}, r"has 2 stages; needs p\*v=4\*1=4; try p=2 with v=1"),
        ({"pipeline_layout": "Et|(t|)*6tL"}, r"has 8 stages; needs p\*v=4\*1=4; try v=2"),
        ({"pipeline_layout": "Et*2|(t*2|)*2tL"}, "has 7 layers; needs layers=8; try more t, or layers=7"),
        ({"pipeline_layout": "Et*4||t|t*3L"}, "leaves pipeline rank 1 without a layer; needs one in stage 1, counted"),
        ({"v": 2, "layers": 6}, r"needs a layer for each stage; try .*, or pipeline_layout='E\|\(t\|\)\*6L'$"),
        ({"pipeline_layout": "E|t*4|t*4|L", "checkpoint_layers": 5}, "with 4 layers in a model chunk"),
    ],
)
def test_a_layout_fits_the_model_and_the_pipeline(changed, problem):
    sizes = {"layers": 8, "hidden": 64, "heads": 4, "p": 4, "B": 8}
    with pytest.raises(ConfigurationError, match=problem):
        TrainingConfig.from_plain(sizes | changed)


def test_a_layout_is_a_field_of_the_configuration():
    config = TrainingConfig(ModelConfig(126, 128, 8), ParallelConfig(p=16, v=8, B=16, pipeline_layout="E|(t|)*126L"))
    assert config.to_plain()["pipeline_layout"] == "E|(t|)*126L"
    assert TrainingConfig.from_plain(config.to_plain()) == config
    assert config.layers_per_chunk == 1

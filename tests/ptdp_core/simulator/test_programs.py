"""Training programs are data: each file has what a simulation needs, and says what it cannot do."""

import tomllib

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import PAPER, load_cluster, simulate
from ptdp_core.simulator.cluster import NUMBERS, with_program
from ptdp_core.simulator.programs import PROGRAM_FOLDER, USUAL, load_program, program_names
from ptdp_core.simulator.software import Software

GPT = TrainingConfig.from_plain(
    {"layers": 24, "hidden": 2304, "heads": 24, "B": 8, "recompute": "none", "attention": "sdpa"}
)


@pytest.mark.parametrize("name", program_names())
def test_every_program_says_what_it_is_and_names_fields_and_numbers_that_there_are(name):
    program, entry = load_program(name), tomllib.loads((PROGRAM_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    assert set(entry) <= {"title", "source", "software", "defaults", "lacks", "numbers", "until"}
    assert program.title
    assert len(program.source) > 20
    assert set(program.defaults) | set(program.lacks) <= set(USUAL)
    assert set(program.numbers) <= set(NUMBERS)
    assert simulate(GPT, with_program(load_cluster("h100"), name)).iteration_time > 0


def test_the_default_is_the_cluster_files_and_the_paper_s_is_that_of_2021():
    assert load_cluster("selene").program == "paper-2021"
    assert load_program("paper-2021").software == PAPER
    h100 = load_cluster("h100")
    assert (h100.program, load_cluster("gb300").program) == ("megatron-core", "megatron-core")
    named = with_program(h100, "megatron-core")
    assert named is with_program(h100, "megatron-core")
    assert simulate(GPT, named).iteration_time == simulate(GPT, h100).iteration_time


def test_a_program_that_reduces_in_16_bits_sends_half_of_one_that_reduces_in_32():
    wide, narrow = (with_program(load_cluster("h100"), name) for name in ("megatron-core", "nemo"))
    assert (wide.gradient_bytes, narrow.gradient_bytes) == (4, 2)


def test_a_release_has_what_it_had():
    old, new = load_program("megatron-bridge@25.11"), load_program("megatron-bridge")
    assert new.software.deduplicated_dispatch
    assert not old.software.deduplicated_dispatch
    assert "attention_kernels" in old.defaults
    assert "attention_kernels" not in load_program("megatron-bridge@26.06").defaults


def test_an_unknown_program_and_one_without_the_technique_are_one_line():
    with pytest.raises(ConfigurationError, match=r"program='nemoo' is unknown; needs one of deepspeed, .*; try nemo$"):
        load_program("nemoo")
    pipelined = TrainingConfig.from_plain(GPT.to_plain() | {"p": 2})
    with pytest.raises(ConfigurationError, match=r"^p=2 with program='llm-foundry', which has no pipeline .*try prog"):
        load_program("llm-foundry").check(pipelined)
    load_program("llm-foundry").check(GPT)


def test_our_engine_s_host_takes_what_was_measured_for_a_layer_and_microbatch():
    """One H100 machine at b=1: 0.808 s, of which the GPU works half (results/reference/gpu/first_run.json)."""
    seconds = simulate(GPT, with_program(load_cluster("h100"), "ptdp")).iteration_time
    assert seconds == pytest.approx(0.808, rel=0.1)
    assert simulate(GPT, load_cluster("h100"), Software()).iteration_time < 0.5

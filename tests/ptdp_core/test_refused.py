"""What no configuration, simulation or training run can be is refused in one line: `refused.txt` has it all."""

import json
from pathlib import Path

import pytest

# ruff: noqa: F401  (what lines that begin with 'called' name)
from kernels import select
from ptdp_core import layout
from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.engine.groups import local_device
from ptdp_core.engine.settings import Settings, check, check_world_size
from ptdp_core.engine.settings_file import from_mapping, override, read
from ptdp_core.launch.recipes import recipe
from ptdp_core.pipeline_layout import stage_sizes
from ptdp_core.schedules import Action, Schedule, StagePlacement, build, looped, lower
from ptdp_core.simulator import cluster_path, load_cluster, read_parameters, simulate
from tests.mistakes import says
from tests.ptdp_core.blocks import KEPT, LATER

SMALL = {"layers": 8, "hidden": 64, "heads": 4, "p": 4, "B": 8}
GPT = {"layers": 32, "hidden": 3072, "heads": 24, "vocab": 131072, "tied_embeddings": False, "B": 4}
LLAMA = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn_hidden": 8192, "seq": 4096, "vocab": 32000}
LLAMA |= {"B": 8, **LATER, **KEPT}
PLAIN = {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 0, "ffn_hidden": 0, "seq": 1024, "vocab": 8192}
PLAIN |= {"activation": "gelu", "positions": "none"}
LATENT = {"layers": 8, "hidden": 512, "heads": 8, "seq": 256, "kv_latent": 512, "query_latent": 1536, "rotary_dim": 64}
BASES = {
    "gpt3": {"layers": 96, "hidden": 12288, "heads": 96, "seq": 2048, "vocab": 51200, "p": 12, "t": 8, "B": 12},
    "small": SMALL,
    "gpt": GPT,
    "llama": LLAMA,
    "mixture": LLAMA | {"experts": 32, "experts_per_token": 4, "expert_ffn_hidden": 1024, "d": 8},
    "plain": {"layers": 8, "hidden": 512, "heads": 8, "seq": 1024, "vocab": 8192}
    | LATER
    | {"positions": "none"}
    | KEPT,
    "deepseek": LLAMA | LATENT | {"kv_heads": 0, "mtp_layers": 1},
}


SELENE = cluster_path("selene").read_text(encoding="utf-8")


def asked():
    """Every line that asks, with the line that refuses."""
    lines = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    return list(zip(rows[::2], (row.strip() for row in rows[1::2]), strict=True))


def given(word):
    name, _, text = word.partition("=")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def file(content):
    """The path of a file in the current folder that has this content."""
    Path("mine.toml").write_bytes(content.encode("latin-1"))
    return "mine.toml"


def ask(line):
    how, _, rest = line.partition(" ")
    words = rest.split()
    if how == "called":
        eval(rest, globals())
    if how in ("cluster", "network"):
        file(json.loads(rest))
        read_parameters("mine.toml" if how == "cluster" else "h100+mine.toml")
        load_cluster("mine.toml")
    if how == "recipe":
        from_mapping(override(recipe(words[0]), words[1:]))
    *cluster, base = (word for word in words if "=" not in word)
    config = TrainingConfig.from_plain(BASES[base] | dict(given(word) for word in words if "=" in word))
    if how == "trained":
        check(Settings(config.model, config.parallel))
    if how == "simulated":
        simulate(config, load_cluster(*cluster))


@pytest.mark.parametrize(("line", "message"), asked(), ids=lambda text: text.partition(" needs ")[0])
def test_what_cannot_be_is_refused_in_one_line(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as refused:  # noqa: PT011  (the whole message is looked at)
        ask(line)
    assert says(str(refused.value), message)
    assert "\n" not in str(refused.value)
    assert "Error(" not in str(refused.value)

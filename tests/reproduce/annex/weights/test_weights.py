"""Weights in Hugging Face's naming: round trips, and the engine against `transformers`' own models."""

import json
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest
import torch

from ptdp_core.config import ModelConfig
from ptdp_core.engine.model import EPSILON
from ptdp_core.engine.settings_file import from_mapping, read
from ptdp_core.formulas import parameters
from ptdp_core.launch.local import launch
from ptdp_core.layout import chunk_parameters
from reproduce.annex.weights import hugging_face
from reproduce.annex.weights.weights import load
from reproduce.cli import main
from tests.processes import python
from tests.ptdp_core.engine import jobs, weights_jobs
from tests.ptdp_core.engine.test_parity import LLAMA, TOLERANCE

SIZES = {"layers": 2, "hidden": 32, "heads": 8, "seq": jobs.SEQ, "vocab": jobs.VOCAB}
EXPERTS = LLAMA | {"experts": 4, "experts_per_token": 2, "router": "softmax_after"}
KINDS = {
    "gpt2": {},
    "llama": LLAMA,
    "mixtral": EXPERTS,
    "qwen3_moe": EXPERTS
    | {
        "expert_ffn_hidden": 12,
        "head_dim": 6,
        "router": "softmax_before",
        "dense_layers": 1,
        "qk_norm": True,
        "auxiliary_loss": 0.01,
    },
}
MODELS = {kind: ModelConfig(**SIZES | fields) for kind, fields in KINDS.items()}


def random_weights(model):
    generator = torch.Generator().manual_seed(3)
    return {
        parameter.name: torch.randn(parameter.shape, generator=generator)
        for parameter in chunk_parameters(model, range(model.layers), 1)
    }


@pytest.mark.parametrize(
    "model",
    [*MODELS.values(), replace(MODELS["llama"], tied_embeddings=True, kv_heads=0, bias=True)],
    ids=[*MODELS, "another llama"],
)
def test_names_and_configuration_there_and_back(model):
    weights = random_weights(model)
    theirs = hugging_face.to_hugging_face(model, weights)
    assert sum(tensor.numel() for tensor in theirs.values()) == sum(tensor.numel() for tensor in weights.values())
    back = hugging_face.from_hugging_face(model, theirs)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
    read_again = hugging_face.model_of(hugging_face.config_of(model))
    assert parameters(read_again) == parameters(model)
    assert hugging_face.config_of(read_again) == hugging_face.config_of(model)


def test_queries_keys_values_gate_and_up_are_where_the_engine_takes_them_from():
    """8 heads of 4, 4 groups: a fused group is two queries, a key, a value; rows of gate and up take turns."""
    model = MODELS["llama"]
    theirs = hugging_face.to_hugging_face(model, random_weights(model))
    ours = hugging_face.from_hugging_face(model, theirs)
    layer, fused = "model.layers.1", ours["layers.1.attention.qkv.weight"].view(4, 4, 4, 32)
    q, k, v = (theirs[f"{layer}.self_attn.{name}_proj.weight"].view(-1, 4, 32) for name in "qkv")
    for group in range(4):
        expected = torch.stack((q[2 * group], q[2 * group + 1], k[group], v[group]))
        assert torch.equal(fused[group], expected)
    gate, up = (theirs[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    assert torch.equal(ours["layers.1.mlp.up.weight"][6], gate[3])
    assert torch.equal(ours["layers.1.mlp.up.weight"][7], up[3])


def test_what_the_engine_has_not_is_refused():
    config = hugging_face.config_of(MODELS["llama"])
    for change, message in (
        ({"model_type": "bert"}, "model_type='bert' is unknown; needs one of gpt2, llama, mixtral, qwen3_moe"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps=1e-06 is another computation than ours; needs 1e-05"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type='llama3' is no plain rotary embedding"),
        ({"model_type": "mixtral", "sliding_window": 8}, "sliding_window=8 is another computation than ours"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0 .* another computation than ours"),
    ):
        with pytest.raises(ValueError, match=message):
            hugging_face.model_of(config | change)
    with pytest.raises(ValueError, match="window=8 is in no format of Hugging Face's known here; needs 0; try"):
        hugging_face.config_of(replace(MODELS["llama"], window=8))
    with pytest.raises(ValueError, match="is neither GPT-2 nor Llama"):
        hugging_face.config_of(replace(MODELS["gpt2"], norm="rmsnorm"))
    for change in ({"router": "sigmoid"}, {"shared_expert_ffn_hidden": 8}, {"dense_layers": 1}, {"bias": True}):
        with pytest.raises(ValueError, match="is neither Mixtral nor Qwen3-MoE"):
            hugging_face.config_of(replace(MODELS["mixtral"], **change))
    theirs = hugging_face.to_hugging_face(MODELS["gpt2"], random_weights(MODELS["gpt2"]))
    del theirs["transformer.h.1.mlp.c_fc.bias"]
    with pytest.raises(ValueError, match=r"tensor='transformer.h.1.mlp.c_fc.bias' is missing"):
        hugging_face.from_hugging_face(MODELS["gpt2"], theirs)


@pytest.mark.parametrize("kind", MODELS)
def test_files_become_a_checkpoint_and_files_again(kind, tmp_path, said, refused):
    package = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    model = replace(MODELS[kind], vocab=200)  # padded to 256
    weights = random_weights(model)
    hugging_face.write(tmp_path / "theirs", model, weights)
    save = tmp_path / "imported"
    assert f"next: reproduce train {save / 'model.toml'} --resume {save}" in said(
        "weights", "import", tmp_path / "theirs", "--save", save
    )
    assert parameters(from_mapping(read(save / "model.toml")).model) == parameters(model)
    trainer = load(save, torch.device("cpu"))
    for local in trainer.store.parameters:
        whole = weights[local.shard.parameter.name]
        assert torch.equal(local.tensor[: len(whole)], whole)
        assert not local.tensor[len(whole) :].any()
    assert main(["weights", "export", str(save), "--out", str(tmp_path / "exported")]) == 0
    for file in ("theirs", "exported"):
        loaded = package.load_file(tmp_path / file / "model.safetensors")
        assert all(torch.equal(loaded[name], x) for name, x in hugging_face.to_hugging_face(model, weights).items())
    assert "needs a folder with it and model.safetensors" in refused("weights", "import", tmp_path, "--save", save)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"num_hidden_layers": 999}, "layers=999, hidden=32, vocab=50 of config.json make "),
        (
            "config.json",
            {"num_hidden_layers": 10**9},
            "layers=1000000000 is more than any model's; needs at most 10000",
        ),
        ("config.json", {"hidden_size": None}, "config.json' describes no model: KeyError"),
        ("config.json", {"num_attention_heads": 0}, "config.json' describes no model: ZeroDivisionError"),
        ("config.json", {"rope_scaling": "x"}, "config.json' describes no model: AttributeError"),
        ("config.json", "[" * 100_000, "config.json' is nested too deeply; needs a folder with config.json"),
        ("config.json", "[]", "config.json' holds no object; needs"),
        ("model.safetensors.index.json", {"weight_map": {"x": "../model.safetensors"}}, "has no weight_map; needs the"),
        ("model.safetensors.index.json", {"weight_map": ["x"]}, "has no weight_map; needs the files of this folder"),
        ("model.safetensors", "x", "model.safetensors' cannot be read: "),
    ],
)
def test_files_that_somebody_edited(file, change, message, tmp_path):
    pytest.importorskip("safetensors.torch", reason="needs safetensors")
    hugging_face.write(tmp_path, MODELS["llama"], random_weights(MODELS["llama"]))
    config = hugging_face.config_of(MODELS["llama"])
    text = change if isinstance(change, str) else json.dumps((config if file == "config.json" else {}) | change)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        hugging_face.read(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_run_begins_with_imported_weights(tmp_path):
    """At another batch size, seed, precision and layout than the checkpoint says: its first loss is the model's."""
    pytest.importorskip("safetensors", reason="needs safetensors")
    model = replace(MODELS["llama"], vocab=256, seq=16)
    hugging_face.write(tmp_path / "theirs", model, {name: 0.02 * x for name, x in random_weights(model).items()})
    save = tmp_path / "imported"
    assert main(["weights", "import", str(tmp_path / "theirs"), "--save", str(save)]) == 0
    sets = ["p=2", "t=2", "B=4", "b=2", "seed=7", "steps=2", "dtype=bf16", f"log={tmp_path / 'log'}"]
    words = [word for text in sets for word in ("--set", text)]
    # A process of its own: what ranks print goes to where the program that started their server printed then.
    run = python("-m", "ptdp_core.launch", save / "model.toml", "--resume", save, "--ranks", 4, *words)
    assert "steps 1 to 2" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_loss_and_every_gradient_are_those_of_transformers(kind, tmp_path):
    """Randomly initialised there, written by `save_pretrained`, read by us; fp64, 1e-9, over several layouts."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("safetensors", reason="needs safetensors")
    torch.manual_seed(5)
    config = hugging_face.config_of(MODELS[kind])
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if kind == "gpt2" else {}
    eager = {"experts_implementation": "eager"} if MODELS[kind].experts else {}
    settings = transformers.AutoConfig.for_model(**config, **dropout, **eager, attn_implementation="sdpa")
    theirs = transformers.AutoModelForCausalLM.from_config(settings).double()
    theirs.save_pretrained(tmp_path / "theirs")
    in_fp64(theirs)
    model, weights = hugging_face.read(tmp_path / "theirs")
    assert parameters(model) == parameters(MODELS[kind])
    tokens = jobs.batches(8)[0]
    logits = theirs(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    gradients = in_files({name: x.grad for name, x in theirs.named_parameters()}, kind)
    other = {"gradients": hugging_face.from_hugging_face(model, gradients), "weights": weights}
    torch.save(other | {"loss": loss.item(), "tokens": tokens}, tmp_path / "other.pt")
    common = {"B": 8, "layers": 2} | KINDS[kind] | {"hidden": 32, "heads": 8, "auxiliary_loss": 0.0}
    layouts = [
        [{}, {"attention": "sdpa", "recompute": "none", "b": 4}],
        [
            {"p": 2, "t": 2, "b": 2},
            {"p": 1, "t": 4, "sequence_parallel": True},
            {"t": 2, "d": 2, "sharded_optimizer": True, "data_parallel": "torch", "attention": "sdpa"},
            {"p": 2, "t": 2, "schedule": "zb-h1", "exchange": "overlapped", "recompute": "selective"},
        ],
    ]
    if MODELS[kind].experts:
        layouts[1] += [{"t": 2, "d": 2, "e": 2, "sequence_parallel": True}, {"p": 2, "d": 2, "e": 2, "b": 2}]
        layouts[1] += [{"d": 4, "e": 4, "sharded_optimizer": True}]
    for cases in layouts:
        work = [common | case for case in cases]
        ranks = 4 if len(cases) > 2 else 1
        for rows in launch(weights_jobs.against, ranks, (work, str(tmp_path / "other.pt")), process_group=ranks > 1):
            for case, errors in zip(cases, rows, strict=True):
                assert max(errors.values()) <= TOLERANCE, (case, errors)


def in_files(tensors, kind):
    """Tensors by the names in files, which have a matrix for each expert and part, where its modules have stacks."""
    moved = {}
    for name, x in tensors.items():
        stem, _, part = name.rpartition(".")
        if kind == "mixtral":
            stem = stem.replace(".mlp.", ".block_sparse_moe.")
        gate, up, down = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        if part not in ("gate_up_proj", "down_proj"):
            moved[f"{stem}.{part}"] = x
            continue
        for number, matrix in enumerate(x):
            named = {down: matrix} if part == "down_proj" else dict(zip((gate, up), matrix.chunk(2), strict=True))
            moved |= {f"{stem}.{number}.{own}.weight": y for own, y in named.items()}
    return moved


def in_fp64(theirs):
    """RMSNorm and routers there compute in fp32 whatever the precision, which is changed here."""

    def route(x, forward):
        exact = lambda x, dim, dtype=None: torch.softmax(x.double(), dim)  # noqa: E731
        with patch.object(torch.nn.functional, "softmax", exact), patch.object(torch.Tensor, "float", lambda x: x):
            return forward(x)

    for module in list(theirs.modules()):
        if type(module).__name__.endswith("TopKRouter"):
            module.forward = partial(route, forward=module.forward)
        for name, norm in list(module.named_children()):
            if type(norm).__name__.endswith("RMSNorm"):
                exact = torch.nn.RMSNorm(norm.weight.numel(), EPSILON, dtype=torch.float64)
                exact.weight = norm.weight
                setattr(module, name, exact)

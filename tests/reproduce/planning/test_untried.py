"""What a plan's search may use, what it does not try, and public jobs at which it has to find the better layout."""

import re
from dataclasses import asdict, replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.fields import choices
from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.cluster import with_program
from ptdp_core.simulator.software import PAPER
from reproduce.annex.page import words
from reproduce.planning.cells import RECIPES, TECHNIQUES, families
from reproduce.planning.plan import make_plan, request
from reproduce.planning.search import search
from reproduce.planning.space import TrainingJob
from reproduce.planning.untried import DISPATCH, LEAST_GAIN, may_use, sentence
from reproduce.planning.what_if import evaluate
from results.records.errors import NothingSelectedError, UsageError

MIXTURE = {"layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn_hidden": 2048, "vocab": 32000, "seq": 4096}
MIXTURE |= {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False, "tied_embeddings": False}
MIXTURE |= {"experts": 64, "experts_per_token": 8}

JOB = TrainingJob(
    ModelConfig(4, 1024, 8, 1024, experts=8, experts_per_token=2, expert_ffn_hidden=512, bias=False), 8, 8
)


def planned(cluster, *names, forbid=(), **asked):
    name, job = request(asked)
    return make_plan(name, job, load_cluster(cluster), cluster, 1, allow=names, forbid=forbid)


@pytest.mark.parametrize(
    ("model", "seq", "gpus", "seconds"),
    [("llama-3-8b", 8192, 16, 0.775), pytest.param("qwen2.5-32b", 4096, 8, 1.949, marks=pytest.mark.slow)],
)
def test_zero_3_is_found_where_simulate_says_that_it_is_faster(model, seq, gpus, seconds):
    """`plan_misses_fsdp`: no configuration that `simulate` takes is faster than rank 1 beyond what the plan says."""
    plan = planned("h100", model=model, seq=seq, gpus=gpus, batch=gpus)
    known = {"model": model, "seq": seq, "d": gpus, "B": gpus, "data_parallel": "zero3", "attention": "sdpa"}
    answers = [evaluate(known | {"recompute": again}, 1, "h100") for again in ("none", "full")]
    times = [answer["iteration_time"] for answer in answers if answer["status"] == "ok"]
    assert min(times) == pytest.approx(seconds, rel=0.01)
    fastest = min(estimate.iteration_time for estimate in plan.search.ranked)
    assert fastest <= min(times) * (1 + 1e-9)
    if model == "llama-3-8b":
        assert plan.best.config.parallel.data_parallel == "zero3"
    without = planned("h100", forbid=("zero3",), model=model, seq=seq, gpus=gpus, batch=gpus)
    assert without.best.iteration_time > fastest
    assert "forbidden, or not what the program has: zero3" in sentence(without.untried, without.techniques)


def test_what_may_be_used_is_said_by_name():
    h100, selene = load_cluster("h100"), load_cluster("selene")
    dense, mixture = ModelConfig(8, 1024, 8), ModelConfig(8, 1024, 8, experts=8, experts_per_token=2)
    cluster, techniques = may_use(h100, mixture)
    assert list(techniques) == list(TECHNIQUES)
    assert [name for name in DISPATCH if getattr(cluster.software, name)] == list(DISPATCH)
    assert may_use(selene, mixture)[0].software == selene.software  # a program of 2021
    assert may_use(h100, dense)[0].software == h100.software
    cluster, techniques = may_use(h100, mixture, ["fp8", "cuda_graphs"], ["split", "overlapped_exchange"])
    assert set(techniques) == (set(TECHNIQUES) - {"split"}) | (set(RECIPES) - {"nvfp4"})
    assert cluster.software.cuda_graphs
    assert not cluster.software.overlapped_exchange


@pytest.mark.slow
def test_offloading_is_searched_where_it_is_allowed():
    """32 H100s have no room for Qwen3-235B, but for its optimizer in the host's memory."""
    plan = planned("h100", "offload_optimizer", model="qwen3-235b-a22b", seq=4096, gpus=32, batch=64)
    assert plan.best.config.parallel.offload == "optimizer"
    known = asdict(plan.best.config.model) | asdict(plan.best.config.parallel)
    on = [name for name, value in vars(plan.cluster.software).items() if value]
    assert evaluate(known | {"software": on}, 1, "h100")["iteration_time"] == plan.best.iteration_time
    with pytest.raises(UsageError, match="--allow offload_layers on selene, whose file has no host_bandwidth"):
        may_use(load_cluster("selene"), ModelConfig(8, 1024, 8), ["offload_layers"])


@pytest.mark.slow
def test_pruning_changes_nothing_with_experts_recipes_and_offloading():
    cluster, techniques = may_use(load_cluster("h100"), JOB.model, ["mxfp8", "offload_layers", "offload_optimizer"])
    names = [name for name in techniques if name not in ("split", "layouts", "interleaving", "tensor")]
    whole = search(JOB, cluster, 5, names, prune=False)
    pruned = search(JOB, cluster, 5, names)
    assert pruned.ranked[:5] == whole.ranked[:5]
    assert pruned.discarded > 0
    assert pruned.legal == whole.legal == whole.too_large + len(whole.ranked)


LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False}
LONG = ModelConfig(4, 2048, 8, 8192, **LLAMA)
LATENT = replace(LONG, seq=512, experts=4, experts_per_token=2, expert_ffn_hidden=512, dense_layers=1)
LATENT = replace(LATENT, kv_latent=128, query_latent=256, rotary_dim=32)


@pytest.mark.parametrize("model", [LATENT, LONG], ids=["latent", "long"])
def test_pruning_changes_nothing_with_all_that_is_searched_by_default(model):
    """FSDP with experts and inside of nodes, modules, latents' dense layers, context parallelism, split schedules."""
    cluster, techniques = may_use(load_cluster("h100"), model)
    job = TrainingJob(model, 4, 4)
    whole, pruned = (search(job, cluster, 5, techniques, prune=prune) for prune in (False, True))
    assert pruned.ranked[:5] == whole.ranked[:5]
    assert pruned.legal == whole.legal == len(whole.ranked) > 5 * len(pruned.ranked)
    kinds = {(each.config.parallel.data_parallel, each.config.parallel.recompute) for each in whole.ranked}
    assert {("zero3", "selective"), ("zero2", "full"), ("local", "none")} <= kinds


def test_what_the_program_lacks_is_not_searched():
    """transformers has no pipeline and no context parallelism; llm-foundry no tensor parallelism either."""
    h100, model = load_cluster("h100"), ModelConfig(8, 1024, 8)
    for program, missing in (("hf", {"pipeline", "context"}), ("llm-foundry", {"pipeline", "tensor", "context"})):
        _, techniques = may_use(with_program(h100, program), model, ["fp8"])
        assert set(TECHNIQUES) - set(techniques) == missing
        grids = [family.shared for family in families(TrainingJob(model, 8, 8), 8, techniques)]
        assert {shared["p"] for shared in grids} == {1}
        assert {shared["t"] for shared in grids} == ({1} if "tensor" in missing else {1, 2, 4, 8})
    assert not set(RECIPES) & set(may_use(with_program(h100, "nanotron"), model, ["fp8"])[1])


@pytest.mark.parametrize(
    ("cluster", "names", "message"),
    [
        ("h100", ["delayd"], r"^--allow 'delayd' is unknown; did you mean 'delayed'\?$"),
        ("h100", ["xyz"], "^--allow 'xyz' is unknown; needs some of pipeline, tensor, .*; try --allow fp8$"),
        ("h100", ["nvfp4"], "--allow nvfp4 on h100, whose GPU has none"),
        ("selene", ["fp8"], "--allow fp8 on selene, whose GPU has none; needs another cluster; try h100"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(cluster, names, message):
    with pytest.raises(UsageError, match=message):
        may_use(load_cluster(cluster), ModelConfig(8, 1024, 8), names)


def test_every_change_is_what_simulate_says_of_it_and_no_gaining_switch_is_left_out():
    plan = planned("h800", forbid=DISPATCH, **MIXTURE, gpus=64, batch=64)
    base = asdict(plan.best.config.model) | asdict(plan.best.config.parallel)
    on = [name for name, value in vars(plan.cluster.software).items() if value]
    for one in plan.untried:
        if one.estimate is not None:
            point = {**base, **one.fields, "software": [*on, *one.software]}
            assert evaluate(point, 1, "h800")["iteration_time"] == one.estimate.iteration_time, one.what
    names = [one.what for one in plan.untried]
    assert any(name.split()[-1] in RECIPES for name in names)
    for name in vars(PAPER):
        faster = evaluate({**base, "software": sorted({*on, name})}, 1, "h800")["iteration_time"]
        gain = plan.best.iteration_time / faster - 1
        assert (f"--allow {name}" in names) == (name not in on and gain >= LEAST_GAIN)


def test_an_allowed_recipe_is_searched_and_said(tmp_path, said, as_json, refused):
    words = ["--model", "llama-3-8b", "--gpus", "8", "--batch", "16", "--cluster", "h100", "--results", str(tmp_path)]
    printed = " ".join(said("plan", *words).split())
    assert "NOT TRIED by the search, here simulated on rank 1, tokens/s: --allow " in printed
    found = as_json("plan", *words, "--allow", "mxfp8", "--forbid", "modules,split")
    assert "mxfp8" in found["searched"]
    assert not {"modules", "split"} & set(found["searched"])
    best = found["configurations"][0]
    assert best["fp8_recipe"] == "mxfp8"
    assert best["recompute"] != "selective"
    assert refused("plan", *words, "--allow", "everything")


def test_what_was_not_tried_says_what_a_recipe_is():
    assert tuple(RECIPES) == choices(ParallelConfig)["fp8_recipe"][1:]
    plan = planned("h100", model="llama-3-8b", gpus=8, batch=16, forbid=("modules", "split"))
    assert "--allow delayed (FP8, delayed scaling) +" in sentence(plan.untried, plan.techniques)
    assert words.said(sentence(plan.untried, plan.techniques)).count("delayed scaling") == 1


def test_what_takes_least_memory_may_be_fsdp_and_the_nearest_gpus_are_enough():
    with pytest.raises(NothingSelectedError, match=r"t=4, d=1, .*, c=2, data_parallel=zero3 takes least") as refused:
        planned("h100", model="llama-3-70b", gpus=8, batch=8)
    (gpus,) = re.findall(r"try gpus=(\d+)", str(refused.value))
    assert planned("h100", model="llama-3-70b", gpus=int(gpus), batch=8).best.fits

"""Mixtures of experts: the serial model's loss, gradients and parameters at every layout; counts; checkpoints."""

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ptdp_core.engine import weight_gradients
from ptdp_core.engine.experts import _Logits, grouped_product
from ptdp_core.engine.optimizer import learning_rate
from ptdp_core.engine.weight_gradients import DeferredWgrad, Grouped, has_grouped_gemm, is_grouped
from ptdp_core.formulas import model_flops_per_iteration, parameters
from ptdp_core.launch.local import launch
from ptdp_core.layout import RankGrid, chunk_parameters, layer_passes, stage_passes, step_collectives
from reproduce.annex.exact.dispatched import Counts
from tests.marks import by_default
from tests.ptdp_core.engine import jobs, serial, serial_model, test_parity
from tests.ptdp_core.engine.jobs import in_ranks

MIXTURE = {
    "hidden": 16, "heads": 4, "kv_heads": 4, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary",
    "tied_embeddings": False, "bias": False, "experts": 4, "experts_per_token": 2, "expert_ffn_hidden": 8,
}  # fmt: skip
EVERYTHING = MIXTURE | {"layers": 4, "shared_expert_ffn_hidden": 12, "dense_layers": 1, "auxiliary_loss": 0.1}
GPT = {"activation": "gelu", "norm": "layernorm", "positions": "learned", "tied_embeddings": True, "bias": True}


def serial_run(case):
    """The serial model's run with the case's microbatches, to which balance and capacity refer."""
    s = jobs.settings_of(case)
    rates = [learning_rate(step, s.optimizer) for step in range(jobs.STEPS)]
    loss = partial(serial_model.loss, s.model, capacity_factor=s.parallel.capacity_factor)
    drop, data = serial.Dropout(0.0, []), jobs.batches(s.parallel.B)
    decay, clip = s.optimizer.weight_decay, s.optimizer.clip
    weights = serial_model.initial(s.model, jobs.SEED)
    return serial.train(weights, loss, data, s.parallel.b, drop, rates, decay, clip)


def check(cases, folder):
    numbers = itertools.count()

    def path(case):
        path = str(folder / f"{next(numbers)}.pt")
        torch.save(serial_run(case), path)
        return path

    test_parity.check(cases, SimpleNamespace(path=path))


def test_one_rank(tmp_path):
    ways = [
        {"recompute": "none"},
        {"recompute": "full"},
        {"router": "softmax_before"},
        {"router": "sigmoid"},
        {"experts_per_token": 1, "router": "softmax_before"},
        {"capacity_factor": 0.7, "recompute": "full", "b": 2},
        GPT | {"schedule": "gpipe"},
    ]
    check([EVERYTHING | {"B": 4} | way for way in ways], tmp_path)


LAYOUTS = [
    {"d": 2, "e": 2},
    {"d": 2, "e": 1},
    {"d": 2, "e": 2, "data_parallel": "torch", "bucket_mib": 0.002},
    {"d": 2, "e": 2, "data_parallel": "torch", "sharded_optimizer": True, "overlapped_gather": True},
    {"t": 2, "recompute": "none"},
    {"t": 2, "sequence_parallel": True, "overlapped_all_reduce": True},
    {"p": 2, "recompute": "none", "schedule": "zb-h1"},
    {"p": 2, "t": 1, "d": 2, "e": 2, "exchange": "overlapped", "sharded_optimizer": True},
    {"t": 2, "d": 2, "e": 2, "sequence_parallel": True, "sharded_optimizer": True},
    {"t": 2, "d": 2, "e": 2, "data_parallel": "torch", "fused_accumulation": True, "bucket_mib": 0.002},
    {"d": 4, "e": 4, "capacity_factor": 0.5, "b": 2, "B": 8},
    {"d": 4, "e": 2, "sharded_optimizer": True, "recompute": "selective", "recompute_modules": "core_attn,moe"},
    {"d": 4, "e": 2, "capacity_factor": 1.0, "data_parallel": "torch", "router": "sigmoid"},
    {"p": 2, "t": 2, "v": 2, "scatter_gather": True, "router": "softmax_before"},
    {"p": 2, "d": 2, "e": 2, "schedule": "zb-h1", "data_parallel": "torch", "fused_accumulation": True},
    GPT | {"p": 2, "d": 2, "e": 2, "data_parallel": "torch", "sharded_optimizer": True},
    GPT | {"p": 2, "d": 2, "e": 1, "sharded_optimizer": True},
    GPT | {"t": 2, "qk_norm": True, "head_dim": 6, "positions": "rotary"},
    {"t": 2, "sequence_parallel": True, "qk_norm": True, "head_dim": 6},
    {"t": 2, "etp": 1, "sequence_parallel": True},
    {"t": 2, "etp": 1, "e": 2, "sequence_parallel": True, "sharded_optimizer": True},
    {"t": 2, "d": 2, "etp": 1, "e": 4, "sequence_parallel": True, "data_parallel": "torch", "fused_accumulation": True},
    {"t": 2, "d": 2, "etp": 1, "e": 2, "sequence_parallel": True, "recompute": "none"},
    {"c": 2, "e": 2},
    {"c": 2, "d": 2, "e": 4, "sharded_optimizer": True, "qk_norm": True},
    {"c": 2, "t": 2, "e": 4, "etp": 1, "sequence_parallel": True, "context_exchange": "all_to_all"},
]  # fmt: skip


@pytest.mark.parametrize("part", by_default(range(2), 1))
def test_layouts(part, tmp_path):
    check([EVERYTHING | {"B": 4} | layout for layout in LAYOUTS[part::2]], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_layouts_otherwise(part, tmp_path):
    """The same layouts with other schedules, with everything overlapped, recomputed in part, and as a GPT."""
    others = [
        {"recompute": "selective", "experts_per_token": 3, "router": "softmax_before"},
        {"fused_accumulation": True, "data_parallel": "torch", "bucket_mib": 0.001, "b": 2, "B": 8},
        GPT | {"positions": "rotary", "experts_per_token": 1, "router": "sigmoid", "shared_expert_ffn_hidden": 0},
        {"layers": 5, "dense_layers": 0, "sharded_optimizer": True, "capacity_factor": 4.0, "exchange": "overlapped"},
    ]
    check([EVERYTHING | {"B": 4} | layout | others[part] for layout in LAYOUTS], tmp_path)


def test_a_checkpoint_goes_on_at_another_number_of_expert_ranks(tmp_path):
    case = EVERYTHING | {"B": 4, "auxiliary_loss": 0.0}
    saved = case | {"t": 2, "d": 2, "e": 2, "sharded_optimizer": True}
    expected = in_ranks(jobs.save_and_go_on, saved, str(tmp_path), False)[0]
    assert in_ranks(jobs.load_and_go_on, saved, str(tmp_path))[0][0] == expected
    for layout in ({}, {"d": 4, "e": 4}, {"p": 2, "t": 2, "d": 1}, {"d": 4, "e": 2, "sharded_optimizer": True}):
        losses, _ = in_ranks(jobs.load_and_go_on, case | layout, str(tmp_path))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


EXCHANGING = [
    {"d": 2, "e": 2},
    {"d": 4, "e": 2},
    {"d": 4, "e": 4},
    {"t": 2, "d": 2, "e": 2},
    {"t": 2, "d": 2, "e": 2, "sequence_parallel": True},
    {"t": 2, "d": 2, "e": 4, "etp": 1, "sequence_parallel": True},
    {"p": 2, "d": 2, "e": 2},
    {"c": 2, "d": 2, "e": 4},
]


@pytest.mark.parametrize("number", by_default(range(len(EXCHANGING)), 1, 5))
def test_ranks_of_experts_communicate_as_the_layout_says(number):
    """Calls and bytes of every rank's all-to-alls, and bytes of its gradients; every token goes to all experts.

    32 configurations with and without recomputation and a shared expert.
    """
    base = MIXTURE | EXCHANGING[number] | {"layers": 2, "experts_per_token": 4, "B": 8}
    cases = [
        base | {"recompute": recompute, "shared_expert_ffn_hidden": shared}
        for recompute, shared in itertools.product(("none", "full"), (0, 12))
    ]
    ranks = jobs.settings_of(base).parallel.n
    for case, *rows in zip(cases, *launch(jobs.all_communicated, ranks, (cases,), timeout=120), strict=True):
        config, size = jobs.settings_of(case).training, 8
        model, par = config.local_model, config.parallel
        forward, backward, _ = layer_passes(config, "ep")
        layers = par.m * model.layers // par.p
        runs = layers * (2 if par.recompute == "full" else 1)  # of forward passes
        calls = [*forward * runs, *backward * layers]
        for rank, counted in enumerate(rows):
            # Before every dispatch each rank says how many tokens are for each expert, in integers of 8 bytes.
            assert counted["ep all_to_all calls"] == len(calls) + runs
            assert counted["ep all_to_all bytes"] == (sum(c.elements for c in calls) + runs * model.experts) * size
            step = step_collectives(config)[RankGrid.of(par).coordinates(rank)["pp"]]
            reduced = {call.group: call.elements * size for call in step if call.group in ("dp", "edp")}
            assert reduced == {group: counted[f"{group} all_reduce bytes"] for group in reduced}
            partial = [call.elements * size for call in step if call.group == "tp"]
            if not par.sequence_parallel and par.t > 1:  # otherwise compared with all calls of tensor ranks
                calls_per_token = 3 * par.m * model.seq * par.b * size
                activations = [call for part in stage_passes(config, 0) for call in part if call.group == "tp"]
                sent = par.m * sum(call.elements for call in activations) * size
                assert counted["tp all_reduce bytes"] == sent + calls_per_token + sum(partial)


@pytest.mark.parametrize("shared", [0, 12])
@pytest.mark.parametrize(
    "layout",
    [
        {"t": 2},
        {"t": 2, "sequence_parallel": True, "recompute": "full"},
        {"t": 2, "etp": 1, "e": 2, "sequence_parallel": True},
        {"p": 2, "t": 2, "sequence_parallel": True},
    ],
)
def test_tensor_ranks_communicate_as_the_layout_says(layout, shared):
    """Calls on activations; the all-reduces of losses and of partial gradients are counted elsewhere."""
    case = {"recompute": "none"} | MIXTURE | {"layers": 2, "B": 2, "shared_expert_ffn_hidden": shared} | layout
    config = jobs.settings_of(case).training
    for rank, counted in enumerate(in_ranks(jobs.communicated, case)):
        stage = rank // config.parallel.t if config.parallel.p > 1 else 0
        calls = Counter(call.operation for part in stage_passes(config, stage) for call in part if call.group == "tp")
        last = stage == config.parallel.p - 1
        calls["all_reduce"] += 3 * last  # of the cross-entropy
        expected = {f"tp {name} calls": count * config.parallel.m for name, count in calls.items() if count}
        expected["tp all_reduce calls"] = expected.get("tp all_reduce calls", 0) + 1  # of partial gradients
        assert {key: value for key, value in counted.items() if key.startswith("tp") and "calls" in key} == expected


def test_no_token_is_lost_on_the_way_however_they_are_routed():
    case = MIXTURE | {"layers": 2, "d": 4, "e": 4, "B": 4, "recompute": "none"}
    model = jobs.settings_of(case).model
    sent = sum(counted["ep all_to_all bytes"] for counted in in_ranks(jobs.communicated, case))
    each = sum(call.elements for calls in layer_passes(jobs.settings_of(case).training, "ep")[:2] for call in calls)
    assert sent == 4 * model.layers * (each + model.experts) * 8


def test_gradients_of_experts_are_reduced_over_the_ranks_that_hold_them():
    case = MIXTURE | {"layers": 2, "d": 4, "e": 2, "B": 4, "recompute": "none"}
    model = jobs.settings_of(case).model
    parts = chunk_parameters(model, range(2), 1)
    stacked = sum(part.shard(1, 0, 2, 0).elements for part in parts if part.stacked)
    others = sum(part.shard(1, 0).elements for part in parts if not part.stacked)
    for counted in in_ranks(jobs.communicated, case):
        assert counted["edp all_reduce bytes"] == stacked * 8
        assert counted["dp all_reduce bytes"] == others * 8


@pytest.mark.parametrize(
    "layout", [{}, {"p": 2, "d": 2, "e": 2}, {"t": 2}, {"t": 2, "etp": 1, "e": 2, "sequence_parallel": True}]
)
def test_dropped_tokens_are_counted(layout):
    """Every token chooses all experts, of which each takes half of a rank's."""
    case = MIXTURE | {"layers": 4, "experts_per_token": 4, "capacity_factor": 0.5, "B": 4, "dense_layers": 1}
    microbatches, layers = 4, 3
    for counts in in_ranks(jobs.dropped, case | layout):
        assert counts == [microbatches * layers * 4 * jobs.SEQ // 2] * jobs.STEPS
    assert in_ranks(jobs.dropped, case | layout | {"capacity_factor": 1.0})[0] == [0] * jobs.STEPS


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_experts_learn_in_mixed_precision(dtype):
    """The losses are those of fp32, as far as the precision goes; two ways to add gradients agree."""
    case = EVERYTHING | {"d": 2, "e": 2, "B": 4}
    exact = in_ranks(jobs.losses_and_norms, case | {"dtype": "fp32"})[0]
    for fused in (False, True):
        rows = in_ranks(jobs.losses_and_norms, case | {"dtype": dtype, "fused_accumulation": fused})[0]
        for ours, theirs in zip(rows, exact, strict=True):
            assert ours == pytest.approx(theirs, rel=2e-2)


def test_a_gradient_that_is_not_finite_in_one_expert_stops_all_ranks():
    case = EVERYTHING | {"d": 2, "e": 2, "B": 4}
    for text in in_ranks(jobs.poisoned_expert, case):
        assert "gradient norm nan at step 1" in text


def test_groups_of_experts_are_regrouped_data_ranks():
    grid = RankGrid.sized(p=2, t=2, d=4)
    groups = {grid.expert_group(rank, 2, 2) for rank in range(grid.n)}
    assert (0, 2) in groups  # tensor rank 0 of data ranks 0 and 1
    assert sorted(rank for group in groups for rank in group) == list(range(grid.n))
    assert grid.expert_data_group(0, 2, 2) == (0, 4)
    assert grid.expert_data_group(11, 2, 2) == (11, 15)
    assert grid.expert_group(5, 4, 1) == (4, 5, 6, 7)  # without tensor parallelism in experts, neighbours
    assert grid.expert_data_group(5, 4, 1) == (1, 5)


def test_the_balance_is_mixtral_s():
    """Of one layer; `transformers` takes the mean over all layers before it multiplies, and computes in fp32."""
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral", reason="needs transformers")
    trainer = jobs.make(MIXTURE)[0]
    router = trainer.chunks[0].layers[0].mlp.router
    x = torch.randn(64, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = x @ router.weight.T
    expected = mixtral.load_balancing_loss_func((logits,), 4, 2)
    scores = logits.softmax(-1)
    assert router._balance(scores, scores.topk(2).indices).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("case", [MIXTURE, EVERYTHING, EVERYTHING | GPT])
def test_parameters_are_those_of_the_layout(case):
    model = jobs.settings_of(case | {"qk_norm": True}).model
    assert parameters(model) == sum(part.elements for part in chunk_parameters(model, range(model.layers), 1))


def test_flops_are_those_of_the_gemms_that_run():
    """Forward and backward of one batch, counted; every token has k experts, whichever they are."""
    trainer, data = jobs.make(EVERYTHING | {"B": 2, "recompute": "none"})
    counts = Counts(trainer.groups)
    with counts.active():
        trainer.forward_backward(data[0])
    model = trainer.settings.model
    padding = 6 * 2 * jobs.SEQ * model.hidden * (128 - model.vocab)  # of the vocabulary
    weighted = 3 * 2 * 2 * jobs.SEQ * model.experts_per_token * model.hidden * 3  # sums of experts, three layers
    assert counts.flops == model_flops_per_iteration(model, 2) + padding + weighted


def test_a_router_in_fp32_is_not_of_tf32(monkeypatch):
    used = []
    product = torch.nn.functional.linear

    def linear(x, weight, *bias):
        used.append(torch.get_float32_matmul_precision())
        return product(x, weight, *bias)

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        trainer, _ = jobs.make(MIXTURE | {"dtype": "fp32", "layers": 1, "B": 1})
        monkeypatch.setattr(torch.nn.functional, "linear", linear)
        trainer.chunks[0].layers[0].mlp.router(torch.randn(6, 16))
        assert used == ["highest"]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_routers_products_in_bf16_are_those_in_fp32():
    generator = torch.Generator().manual_seed(6)
    x, weight = (torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in ((40, 24), (8, 24)))
    grad = torch.randn(40, 8, generator=generator) * torch.logspace(-6, 3, 8)
    logits = _Logits.apply(x, weight)
    assert logits.dtype == torch.float32
    gradients = torch.autograd.grad(logits, (x, weight), grad)
    wide = [x.detach().double(), weight.detach().double(), grad.double()]
    torch.testing.assert_close(logits.double(), wide[0] @ wide[1].t(), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(gradients, (wide[2] @ wide[1], wide[2].t() @ wide[0]), strict=True):
        assert ours.dtype == torch.bfloat16  # rounded once
        torch.testing.assert_close(ours.double(), theirs, rtol=2**-8, atol=1e-3)


def test_tensor_ranks_route_alike():
    """In bf16, whose roundings might differ: each rank computes the same scores of the same tokens."""
    first, second = in_ranks(jobs.routes, MIXTURE | {"t": 2, "B": 2, "layers": 2, "dtype": "bf16"})
    assert first == second
    assert len(first) == 2 * 2  # layers, microbatches


WAITS = ("bincount", "repeat_interleave.Tensor", "_local_scalar_dense", "nonzero", "item")


@pytest.mark.parametrize("grouped", [False, True])
def test_without_expert_parallelism_the_host_waits_for_no_count(grouped, monkeypatch):
    """All that would make a GPU's host wait, in both passes, by grouped GEMMs; separate ones need the counts."""
    monkeypatch.setattr(weight_gradients, "has_grouped_gemm", lambda device: grouped)
    lists = []
    monkeypatch.setattr(Grouped, "listed", property(lambda rows: lists.append(1) or rows.counts.numpy().tolist()))
    case = {"experts": 4, "experts_per_token": 2, "auxiliary_loss": 0.01, "hidden": 16, "dtype": "bf16", "B": 1}
    trainer, data = jobs.make(case | {"layers": 1, "recompute": "none", "fused_accumulation": True})
    run = Counter()

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            run[str(operator).removeprefix("aten.")] += 1
            return operator(*args, **(kwargs or {}))

    with Counted():
        loss, _ = trainer.forward_backward(data[0])
    assert loss.isfinite()
    assert not [name for name in run if any(wait in name for wait in WAITS)]
    assert len(lists) == (0 if grouped else 2 * 3)


@pytest.mark.parametrize("fused_pairs", [False, True])
def test_on_several_expert_ranks_the_host_waits_once_a_layer(fused_pairs):
    """For the numbers of rows to send and to receive, in forward passes alone: of a fused pair the other goes on."""
    case = MIXTURE | {"layers": 2, "e": 2, "d": 2, "B": 4, "dtype": "bf16", "recompute": "none"}
    if fused_pairs:
        case |= {"p": 2, "schedule": "dualpipev", "v": 2, "layers": 4, "B": 8}
    for called in launch(jobs.host_waits, 2 * case.get("p", 1), (case,), timeout=60):
        assert called == ["Tensor.tolist"] * 2 * (case["B"] // case["d"])  # a rank's two layers, its microbatches


def test_a_grouped_gemm_has_the_gradients_of_separate_ones(monkeypatch):
    """Within a rounding to bf16, 2^-8, of what a microbatch adds; an expert without a token gets zeros."""
    make = torch.Generator().manual_seed(1)
    x, grad = (torch.randn(20, width, generator=make).bfloat16() for width in (16, 8))
    weight, rows = torch.zeros(3, 8, 16, dtype=torch.bfloat16), Grouped.of(torch.tensor([12, 0, 8]))
    results = []
    for grouped in (False, True):
        monkeypatch.setattr(weight_gradients, "has_grouped_gemm", lambda device, grouped=grouped: grouped)
        total = torch.ones(3, 8, 16)
        DeferredWgrad(weight, grad, x, rows).add_to(total, replace=False)
        results.append(total)
    torch.testing.assert_close(*results, rtol=0, atol=float(results[0].abs().max()) * 2**-8)
    assert (results[1][1] == 1).all()


def test_a_grouped_gemm_needs_more_than_a_function_of_its_name(monkeypatch):
    assert not is_grouped(torch.empty(8, 16).bfloat16(), torch.empty(2, 16, 8).bfloat16())  # on a CPU
    with FakeTensorMode():
        rows, stack = (torch.empty(size, device="cuda").bfloat16() for size in ((8, 16), (2, 16, 8)))
        for capability, expected in (((8, 0), False), ((9, 0), True)):
            has_grouped_gemm.cache_clear()
            monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, own=capability: own)
            assert is_grouped(rows, stack) is expected
        assert not is_grouped(rows.float(), stack)
        assert not is_grouped(rows, stack[:, :12])
        counts = Grouped.of(torch.empty(2, dtype=torch.int64, device="cuda"))
        assert grouped_product(rows, stack, counts).shape == (8, 8)  # no count is read on the host
        assert DeferredWgrad(stack, rows, torch.empty_like(rows)[:, :8], counts).gradient().shape == stack.shape
    has_grouped_gemm.cache_clear()

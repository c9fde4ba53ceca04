"""What the host does for a layer and microbatch, counted beside a plain GPT: PyTorch's operators, and calls in Python.

Where kernels are short, as in small models or with b=1 on a GPU, the host's time is the step's.
"""

import sys
from collections import Counter

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.harness.training import build
from kernels import why_unavailable
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from reproduce.annex.bench.train_step_peers import PlainGPT

LAYERS, MICROBATCHES = (2, 6), 2


def passes(layers, dtype, kernels="reference", fused_accumulation=True, **fields):
    """Forward and backward passes of a batch: the engine's, with PyTorch's attention, and a plain GPT's."""
    model = ModelConfig(layers=layers, hidden=64, heads=4, seq=32, vocab=256, **fields)
    parallel = ParallelConfig(b=2, B=2 * MICROBATCHES, recompute="none", attention="sdpa")
    settings = EngineSettings(dtype=dtype, fused_accumulation=fused_accumulation)
    trainer, batch, _ = build(model, parallel, "cpu", settings, kernels)
    plain = PlainGPT(model, fused=True)
    return (
        lambda: trainer.executor.run(batch),
        lambda: [(plain(*batch(j)) / MICROBATCHES).backward() for j in range(MICROBATCHES)],
    )


def operators(run):
    """How often each of PyTorch's operators is called, backward passes included."""
    counted = Counter()

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            counted[operator.name()] += 1
            return operator(*args, **(kwargs or {}))

    with Counted():
        run()
    return counted


def python_calls(run):
    """How often each function written in Python is called; on a CPU backward passes run in the same thread."""
    counted = Counter()

    def called(frame, event, argument):
        counted[frame.f_code.co_qualname] += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


def of_a_layer(count, side, dtype="fp32", **settings):
    """What another layer adds to a microbatch."""
    few, many = (passes(layers, dtype, **settings)[side] for layers in LAYERS)
    few(), many()  # what is done once only
    before, after = count(few), count(many)
    return {name: (after[name] - before[name]) / (LAYERS[1] - LAYERS[0]) / MICROBATCHES for name in after}


def test_a_layer_has_no_more_operators_than_a_plain_one():
    ours, plain = (sum(of_a_layer(operators, side).values()) for side in (0, 1))
    assert ours <= plain


def test_a_layer_calls_python_less_than_twice_as_often_as_a_plain_one():
    """It was 5.6 times: linears of its own, which add to main gradients, take 13 calls each, forward and backward."""
    calls, plain = of_a_layer(python_calls, 0), sum(of_a_layer(python_calls, 1).values())
    assert sum(calls.values()) <= 1.9 * plain, sorted(calls.items(), key=lambda call: -call[1])[:20]
    for name in ("Tensor.__hash__", "ParamAndGradBuffer._accumulated", "Function.apply", "OpOverload.__call__"):
        assert not calls.get(name), name


def test_in_mixed_precision_only_vectors_have_a_hook():
    """The GEMMs add to the main gradients of four matrices; four biases and two norms' two vectors are left."""
    assert of_a_layer(python_calls, 0, "bf16")["ParamAndGradBuffer._accumulated"] == 8


def test_alone_and_small_a_layer_calls_what_a_plain_one_calls():
    """In fp32 on one rank, as it trains by default. Attention and MLP are modules here: three calls in Python each."""
    ours, plain = (of_a_layer(operators, side, fused_accumulation=False) for side in (0, 1))
    assert sum(ours.values()) <= 0.8 * sum(plain.values()), (sorted(ours.items()), sorted(plain.items()))
    launched = [sum(n for name, n in side.items() if not is_view(name)) for side in (ours, plain)]
    assert launched[0] < launched[1]
    calls, of_plain = (of_a_layer(python_calls, side, fused_accumulation=False) for side in (0, 1))
    assert sum(calls.values()) <= sum(of_plain.values()) + 10, sorted(calls.items(), key=lambda call: -call[1])[:20]
    for name in ("_OwnLinear.forward", "_Linear.forward", "Operator.__call__", "operands", "_CrossEntropy.forward"):
        assert not calls.get(name), name


# Operators that launch nothing, and the copies of factors of which a CPU makes its sums in fp32: two a linear.
NOTHING = {"view", "_unsafe_view", "t", "permute", "transpose", "unbind", "slice", "detach", "expand", "unsqueeze"}
NOTHING |= {"squeeze", "select", "empty", "empty_like", "new_empty"}


def is_view(name):
    """Whether an operator launches nothing, by its full name."""
    return name.split("::")[-1].split(".")[0] in NOTHING


COPIES = 4 * 2
LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False, "kv_heads": 2}


@pytest.mark.parametrize(("fields", "most"), [({}, 41), (LLAMA, 32)], ids=["gpt", "llama"])
def test_kernels_that_a_layer_launches_in_bf16(fields, most, monkeypatch):
    """Of a Llama it was three times as many. The interpreter's programs do not run: only that they would counts."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    if reason := why_unavailable("triton"):
        pytest.skip(reason)
    launched = []
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda self, *_, **__: launched.append(self.fn.__name__))
    counts = []
    for layers in LAYERS:
        run, _ = passes(layers, "bf16", "triton", **fields)
        launched.clear()
        counted = operators(run)
        counts.append(len(launched) + sum(n for name, n in counted.items() if not is_view(name)))
    of_layer = (counts[1] - counts[0]) / (LAYERS[1] - LAYERS[0]) / MICROBATCHES - COPIES
    assert of_layer <= most

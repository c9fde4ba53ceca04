"""Loss scaling, overflow, mixed precision, the learning rate, and the flat buffers."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernels import select
from ptdp_core.engine import optimizer
from ptdp_core.engine.adamw import AdamW
from ptdp_core.engine.errors import DivergedError
from ptdp_core.engine.groups import Axis, Groups
from ptdp_core.engine.optimizer import LossScale, learning_rate, must_skip
from ptdp_core.engine.param_and_grad_buffer import ParamAndGradBuffer
from ptdp_core.engine.parameters import ParameterStore
from ptdp_core.engine.settings import OptimizerSettings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.launch.local import RankError
from ptdp_core.layout import Parameter
from tests.marks import by_default
from tests.ptdp_core.engine import jobs


def run(case, options, poison=None):
    return jobs.in_ranks(jobs.mixed, case, options, poison)


@pytest.mark.parametrize("poison", by_default([0, 1, 2, 3], 2))
@pytest.mark.parametrize("layout", [{"p": 2, "t": 2}, {"p": 2, "d": 2, "sharded_optimizer": True}], ids=str)
def test_an_overflow_on_any_rank_skips_the_step_on_all(layout, poison):
    """In a sharded optimizer rank `poison` has to own the element, which is the first of its buffer."""
    if layout.get("d") and poison % 2:
        return
    for row in run(layout | {"B": 4, "layers": 2, "dtype": "fp16"}, {"loss_scale": "dynamic"}, poison):
        skipped = [r[2] for r in row["rows"]]
        assert skipped == [False, True, False, False, False]
        assert [r[4] for r in row["rows"]] == [not s for s in skipped]
        assert [r[3] for r in row["rows"]] == [65536.0, 65536.0, 32768.0, 32768.0, 32768.0]
        assert row["updates"] == 4


@pytest.mark.parametrize("scale", by_default([1.0, 8192.0, "dynamic"], 8192.0))
def test_the_loss_scale_changes_nothing_in_fp64(scale):
    case = {"p": 2, "B": 4, "layers": 2}
    plain, scaled = run(case, {"loss_scale": 1.0})[0]["rows"], run(case, {"loss_scale": scale})[0]["rows"]
    for a, b in zip(plain, scaled, strict=True):
        assert b[0] == pytest.approx(a[0], rel=1e-12)
        assert b[1] == pytest.approx(a[1], rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), by_default([("bf16", 2e-2), ("fp16", 3e-3), ("fp32", 1e-5)], ("bf16", 2e-2))
)
def test_lower_precision_follows_fp64(dtype, tolerance):
    case = {"p": 2, "t": 2, "B": 4, "layers": 2}
    exact, rounded = run(case, {}), run(case | {"dtype": dtype}, {"loss_scale": 128.0})
    for a, b in zip(exact[0]["rows"], rounded[0]["rows"], strict=True):
        assert b[0] == pytest.approx(a[0], rel=tolerance)
        assert b[1] == pytest.approx(a[1], rel=10 * tolerance)
    assert rounded[0]["masters"] == torch.float32


SKIPS = OptimizerSettings(on_nan="skip")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "norm"])
def test_what_is_not_finite_is_an_overflow_only_while_the_loss_scale_can_fall(value, where):
    numbers = {"loss": 1.0, "norm": 1.0, where: value}
    stops = OptimizerSettings(lr=0.5)
    assert must_skip(3, scale=LossScale(2.0, dynamic=True), settings=stops, **numbers)
    assert must_skip(3, scale=LossScale(1.0), settings=SKIPS, **numbers)
    for scale in (LossScale(1.0), LossScale(1.0, dynamic=True)):
        with pytest.raises(DivergedError, match=r"at step 3; needs finite numbers; try an lr below 0.5, or clip=1.0"):
            must_skip(3, scale=scale, settings=stops, **numbers)
    with pytest.raises(DivergedError, match=r"try loss_scale='dynamic'"):
        must_skip(3, scale=LossScale(8192.0), settings=stops, **numbers)
    assert not must_skip(3, 1.0, 1.0, LossScale(1.0), stops)


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_gradient_that_is_not_finite_stops_all_ranks_or_is_left_out(on_nan):
    case = {"p": 2, "B": 4, "layers": 2, "dtype": "fp32"}
    if on_nan == "stop":
        with pytest.raises(RankError, match=r"DivergedError: loss=.* with gradient norm nan at step 2; needs finite"):
            run(case, {}, poison=1)
        return
    for row in run(case, {"on_nan": "skip"}, poison=1):
        assert [r[2] for r in row["rows"]] == [False, True, False, False, False]
        assert [r[4] for r in row["rows"]] == [True, False, True, True, True]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_step_waits_for_its_device_once(dtype, monkeypatch):
    """Every way by which a tensor's values reach the host in a training step is `on_host`."""
    waits = []
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "numpy", "cpu"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, f=original, n=name, **k: waits.append(n) or f(*a, **k))
    trainer, data = jobs.make({"B": 2, "dtype": dtype})
    waits.clear()
    for batch in data:
        trainer.step(batch)
    assert waits == ["tolist"] * jobs.STEPS


def test_clipping_by_the_divisor_of_adamw_is_clipping(monkeypatch):
    """fp32 leaves the division to AdamW, fp64 divides before: the same parameters within fp32's rounding."""
    rows = [jobs.trained(lambda: None, [{"B": 2, "dtype": dtype}])[0] for dtype in ("fp32", "fp64")]
    for mine, theirs in zip(*(parameters for _, parameters in rows), strict=True):
        assert mine == pytest.approx(theirs, abs=2e-6)


def test_adamw_is_that_of_torch_and_skips_what_is_not_finite():
    """Matrices and vectors, one of them empty, over steps of which the third is skipped on the device."""
    settings = OptimizerSettings(lr=0.1, weight_decay=0.3)
    shapes, matrices = [(4, 3), (5,), (0, 3), (2, 2)], [True, False, True, True]
    generator = torch.Generator().manual_seed(3)
    mine = [torch.randn(shape, generator=generator) for shape in shapes]
    theirs = [torch.nn.Parameter(x.clone()) for x in mine]
    kinds = [[p for p, kind in zip(theirs, matrices, strict=True) if kind is is_matrix] for is_matrix in (True, False)]
    oracle = torch.optim.AdamW(
        [{"params": kinds[0], "weight_decay": 0.3}, {"params": kinds[1], "weight_decay": 0.0}],
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        foreach=False,
    )
    adam = AdamW(mine, matrices, settings)
    for step in range(5):
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        skipped, lr = step == 2, 0.1 / (step + 1)
        if not skipped:
            for parameter, gradient in zip(theirs, gradients, strict=True):
                parameter.grad = gradient / 4
            for group in oracle.param_groups:
                group["lr"] = lr
            oracle.step()
        adam.step(gradients, lr, torch.tensor(4.0, dtype=torch.float64), torch.tensor(float(skipped)))
    assert adam.updates.item() == 4
    for place, parameter in enumerate(theirs):
        state = adam.state(place)
        torch.testing.assert_close(state["parameter"], parameter.detach())
        if parameter.numel():
            torch.testing.assert_close(state["exp_avg_sq"], oracle.state[parameter]["exp_avg_sq"])


def test_a_dynamic_scale_grows_after_good_steps():
    scale = LossScale.of(OptimizerSettings(loss_scale="dynamic", loss_scale_interval=3))
    values = []
    for overflow in (False, False, True, False, False, False, False):
        scale.update(overflow)
        values.append(scale.value)
    assert values == [65536, 65536, 32768, 32768, 32768, 65536, 65536]


def test_a_static_scale_stays():
    scale = LossScale.of(OptimizerSettings(loss_scale=8192.0))
    scale.update(True)
    assert scale.value == 8192.0


def test_learning_rate_warms_up_and_follows_half_a_cosine():
    s = OptimizerSettings(lr=1.0, min_lr=0.1, warmup_steps=4, decay_steps=14)
    rates = [learning_rate(step, s) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[9] == pytest.approx(0.55)
    assert rates[14:] == pytest.approx([0.1] * 6)
    assert learning_rate(7, OptimizerSettings(lr=1.0, warmup_steps=0, decay_steps=0)) == 1.0


def sharded_buffer(overlap, bucket_bytes, d=3):
    store = ParameterStore(1, Axis("tp"), torch.device("cpu"), torch.float32)
    store.begin_chunk(0, [Parameter(f"w{i}", (size,)) for i, size in enumerate((5, 7, 11, 2))])
    for i in range(4):
        store(f"w{i}")
    groups = Groups(Axis("pp"), Axis("dp", 1, d), Axis("tp"), torch.device("cpu"))
    return ParamAndGradBuffer(store.parameters, groups, overlap=overlap, sharded=True, bucket_bytes=bucket_bytes)


def test_local_has_one_bucket_torch_has_many():
    assert len(sharded_buffer(overlap=False, bucket_bytes=1).buckets) == 1
    many = sharded_buffer(overlap=True, bucket_bytes=8)
    assert [[e.shard.parameter.name for e in b.entries] for b in many.buckets] == [["w3"], ["w2"], ["w1"], ["w0"]]
    few = sharded_buffer(overlap=True, bucket_bytes=40)
    assert [[e.shard.parameter.name for e in b.entries] for b in few.buckets] == [["w3", "w2"], ["w1", "w0"]]


def test_a_single_bucket_is_reduced_after_the_backward_pass():
    """It is complete only then: no hook of autograd need watch for it."""
    assert sharded_buffer(overlap=True, bucket_bytes=40).overlap
    single = sharded_buffer(overlap=True, bucket_bytes=1000)
    assert (len(single.buckets), single.overlap, single._hooks) == (1, False, {})


def test_buckets_split_evenly_and_parameters_are_views_of_the_buffer():
    buffer = sharded_buffer(overlap=True, bucket_bytes=8)
    for bucket in buffer.buckets:
        assert (bucket.stop - bucket.start) % 3 == 0
        first, end = buffer.owned(bucket)
        assert end - first == (bucket.stop - bucket.start) // 3
    for entry in buffer.entries:
        buffer.param_data.fill_(0)
        buffer.param_data[entry.start] = math.pi
        assert entry.parameter.reshape(-1)[0].item() == pytest.approx(math.pi)
        assert entry.parameter.grad.data_ptr() == buffer.main_grad(entry).data_ptr()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_adamw_has_no_more_tensors_in_a_deep_model_and_they_are_all_of_it(dtype):
    """Matrices and vectors, each split over tensor ranks or whole, and the tied embedding."""
    few, many = (jobs.make({"layers": layers, "dtype": dtype})[0] for layers in (2, 6))
    assert len(few.optimizer.stretches) == len(many.optimizer.stretches) == 5
    seen = torch.zeros_like(many.buffer.grad_data)
    for segment, tensors in many.optimizer.states():
        seen[segment.start : segment.stop] += 1
        assert {name: part.numel() for name, part in tensors.items()} == dict.fromkeys(
            ("parameter", "exp_avg", "exp_avg_sq"), segment.stop - segment.start
        )
        weights = many.buffer.param_data[segment.start : segment.stop]
        assert torch.equal(tensors["parameter"].to(weights.dtype), weights)
    assert (seen == 1).all()


def test_pieces_of_which_adamw_has_one_are_not_too_long(monkeypatch):
    trainer = jobs.make({"layers": 2})[0]
    longest = max(entry.parameter.numel() for entry in trainer.buffer.entries)
    monkeypatch.setattr(optimizer, "LONGEST", longest)
    runs = optimizer.side_by_side([segment for segment, _ in trainer.optimizer.states()])
    assert len(runs) > 5
    assert max(run[-1].stop - run[0].start for run in runs) <= longest


@pytest.mark.parametrize("case", [{}, {"experts": 2, "experts_per_token": 1}], ids=["dense", "experts"])
def test_the_host_waits_for_a_gpu_once_a_step(case, monkeypatch):
    """On a GPU that is only described: nothing but loss and norm, at the end, goes between it and the host."""
    read = []
    monkeypatch.setattr(optimizer, "on_host", lambda numbers: read.append(numbers.numel()) or [1.0, 1.0])
    waits = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            out = operator(*args, **(kwargs or {}))
            tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
            copied = "copy" in operator.name() and len({x.device.type for x in tensors}) > 1
            if copied or "_local_scalar_dense" in operator.name():
                waits.append(operator.name())
            return out

    with FakeTensorMode():
        settings = jobs.settings_of({"dtype": "bf16", "B": 2, "layers": 1} | case)
        trainer = Trainer(settings, Groups.alone("cuda"), select("reference"))
        loss = torch.zeros((), device="cuda", dtype=torch.float64)
        with Watched():
            trainer.optimizer.step(1e-3, 1, loss)
    assert (waits, read) == ([], [2])

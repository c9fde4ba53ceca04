"""Overlap and fusion change no result: those of the same operations to the bit, fused sums within their rounding."""

import pytest
import torch

from ptdp_core.engine.weight_gradients import add_product
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs

SHARDED = {"d": 2, "data_parallel": "torch", "sharded_optimizer": True, "bucket_mib": 0.002}


@pytest.mark.parametrize("dtype", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_overlapped_runs_are_equal_to_the_bit(dtype):
    """Losses and parameters of three steps; with recomputation, with split backward passes, with many buckets."""
    base = {"B": 4, "layers": 2, "dtype": dtype}
    tensor, split = base | {"t": 2, "p": 2, "recompute": "full"}, base | {"p": 2, "schedule": "zb-h1"} | SHARDED
    pairs = [
        (tensor, {"overlapped_all_reduce": True}),
        (tensor | {"sequence_parallel": True}, {"overlapped_all_reduce": True}),
        (split, {"overlapped_gather": True}),
        (base | {"t": 2} | SHARDED, {"overlapped_all_reduce": True, "overlapped_gather": True}),
    ]
    cases = [case for plain, switches in pairs for case in (plain, plain | switches)]
    for rows in launch(jobs.trained, 4, (cases,), timeout=60):
        for plain, overlapped in zip(rows[::2], rows[1::2], strict=True):
            assert plain == overlapped


def test_each_module_waits_for_its_own_parameters():
    """After a step all gathers are under way; the first half of a forward pass waits for its buckets only."""
    for after_step, after_first, after_all, gathers in jobs.in_ranks(jobs.gathered, SHARDED | {"B": 4}):
        assert after_step == gathers > 8
        assert 0 < after_first < after_step
        assert after_all == 0


def test_fused_accumulation_sums_16_bit_products_in_fp32():
    """256 gradients of 16 bits: their sum in fp32 keeps what a 16-bit product per microbatch has rounded off."""
    generator = torch.Generator().manual_seed(3)
    grads, inputs = (torch.randn(256, 8, width, generator=generator).bfloat16() for width in (6, 5))
    exact = torch.einsum("mnf,mnh->fh", grads.double(), inputs.double())
    fused, rounded = torch.zeros(6, 5), torch.zeros(6, 5)
    for grad, x in zip(grads, inputs, strict=True):
        add_product(fused, grad.t(), x)
        rounded += grad.t() @ x
    assert torch.allclose(fused.double(), exact, rtol=0, atol=1e-4)
    assert (rounded.double() - exact).abs().max() > 50 * (fused.double() - exact).abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(6, 5), (4100, 300)], ids=["small", "several blocks"])
def test_a_batch_s_first_product_takes_the_place_of_what_was_there(dtype, size):
    a, b = torch.randn(8, size[0]).to(dtype).t(), torch.randn(8, size[1]).to(dtype)
    total, unread = torch.zeros(size), torch.full(size, torch.nan)
    add_product(total, a, b)
    add_product(unread, a, b, replace=True)
    assert torch.equal(unread, total)
    add_product(total, a, b)
    torch.testing.assert_close(total.double(), 2 * (a.double() @ b.double()), rtol=1e-5, atol=1e-5)


def test_large_fp32_weights_train_alike_in_all_schedules_and_as_in_fp64():
    """Their products on a CPU are oneDNN's, in all layouts and passes."""
    base = {"B": 4, "layers": 2, "hidden": 192, "dtype": "fp32", "recompute": "none"}
    overlapped = {"d": 2, "data_parallel": "torch", "bucket_mib": 0.5}
    changes = [{"p": 2}, {"p": 2, "schedule": "zb-h1"}, overlapped, {"t": 2}, {"p": 2, "dtype": "fp64"}]
    cases = [base | change for change in changes]
    for plain, split, replicated, tensor, exact in launch(jobs.trained, 2, (cases,), timeout=60):
        assert plain == split
        for losses, _ in (plain, replicated, tensor):
            assert losses == pytest.approx(exact[0], rel=2e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_gpu_sums_16_bit_products_in_fp32_in_one_gemm(dtype):
    total, a, b = torch.randn(64, 48), torch.randn(64, 256).to(dtype), torch.randn(256, 48).to(dtype)
    expected = total.double() + a.double() @ b.double()
    on_gpu = total.cuda()
    add_product(on_gpu, a.cuda(), b.cuda())
    assert torch.allclose(on_gpu.cpu().double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        *(
            pytest.param(layout, marks=pytest.mark.slow)
            for layout in ({"t": 2}, {"p": 2, "schedule": "zb-h1"}, SHARDED)
        ),
    ],
    ids=str,
)
def test_fused_accumulation_trains_like_fp32(layout):
    """bf16 with fused sums follows bf16 without, and no weight matrix but the embedding gets a gradient of 16 bits."""
    case = {"B": 8, "dtype": "bf16"} | layout
    ranks = layout.get("p", 1) * layout.get("t", 1) * layout.get("d", 1)
    cases = [case, case | {"fused_accumulation": True}]
    for rows in launch(jobs.narrow_gradients, ranks, (cases,), timeout=60, process_group=ranks > 1):
        (losses, matrices), (fused_losses, fused_matrices) = rows
        assert fused_losses == pytest.approx(losses, rel=2e-3)
        assert len(matrices) > 2
        assert not {name for name in fused_matrices if "embedding" not in name}

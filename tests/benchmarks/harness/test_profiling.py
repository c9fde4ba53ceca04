"""What is asked of a GPU while it works, with a program in the place of nvidia-smi, and how kernels are told apart."""

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent

from benchmarks.harness.profiling import GpuState, gpu_state, kind_of, shares


def test_kinds_of_kernels():
    names = ("flash_fwd_kernel", "sm90_xmma_gemm_bf16", "softmax_warp_forward", "vectorized_elementwise_kernel")
    assert [kind_of(name) for name in names] == ["attention_share", "product_share", "attention_share", "other_share"]


def test_shares_of_a_step_that_does_nothing_are_idle():
    assert shares(lambda: None, 10.0, on_gpu=False)["idle_share"] == pytest.approx(1.0, abs=0.1)


def test_a_kernel_counts_once_and_what_none_covers_is_idle(monkeypatch):
    """A profile of 1,000 us as PyTorch keeps it: the host's operators have the time of their kernels, too."""
    host = FunctionEvent(1, "aten::mm", 1, 0, 10, stack=[], use_device="cuda", device_type=DeviceType.CPU)
    host.append_kernel("sm90_xmma_gemm_bf16", 0, 600)
    on_gpu = [
        ("sm90_xmma_gemm_bf16", 100, 700, False),
        ("vectorized_elementwise_kernel", 600, 800, False),  # on another stream, half beside the product
        ("flash_fwd_kernel", 800, 850, False),
        ("PP:0F0", 0, 1000, True),
    ]
    kept = EventList(
        [
            host,
            *(
                FunctionEvent(
                    2,
                    name,
                    7,
                    start,
                    end,
                    stack=[],
                    use_device="cuda",
                    device_type=DeviceType.CUDA,
                    is_user_annotation=named,
                )
                for name, start, end, named in on_gpu
            ),
        ],
        use_device="cuda",
    )
    kept._build_tree()

    class Profile:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def events(self):
            return kept

        key_averages = staticmethod(kept.key_averages)

    monkeypatch.setattr("benchmarks.harness.profiling.profile", lambda **_: Profile())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    found = shares(lambda: None, 1000e-6, on_gpu=True)
    expected = {"product_share": 0.6, "other_share": 0.1, "attention_share": 0.05, "idle_share": 0.25}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("says", "state"),
    [
        ("echo 1980, 650.5, 61", GpuState(1.98e9, 650.5, 61.0)),
        ("echo [N/A], 650.5, 61", None),
        ("exit 9", None),
        (None, None),
    ],
)
def test_the_state_of_a_gpu(says, state, tmp_path, monkeypatch):
    """Whatever nvidia-smi says, every rank takes its step."""
    if says is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    steps = []
    assert gpu_state(lambda: steps.append(1), "GPU-1") == state
    assert steps == [1]

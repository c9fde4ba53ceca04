"""Which implementation is chosen, and the reasons why one is not."""

import importlib.util
import shutil

import pytest
import torch

from kernels import available, select, why_unavailable


def test_a_cpu_gets_the_reference():
    assert select("auto", "cpu").name == "reference"
    assert select().device == torch.device("cpu")


def test_a_gpu_gets_the_first_that_runs_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert select("auto", "cuda").name == "triton"
    assert available("cuda:1") == ("reference", "compiled", "triton")
    assert why_unavailable("reference", "cuda:2") == "needs an index below 2, the number of GPUs here; try cuda:0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    assert why_unavailable("triton", "cuda").startswith("needs compute capability 7.0 or newer, and this GPU has 6.1")
    assert select("auto", "cuda").name == "compiled"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert select("auto", "cuda").name == "reference"


def test_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"kernels='triton' cannot run on device='cuda'; needs a GPU that PyTorch"):
        select("triton", "cuda")
    with pytest.raises(ValueError, match=r"kernels='reference' cannot run on device='cuda'; needs a GPU"):
        select("auto", "cuda")
    assert available("cuda") == ()


def test_another_kind_of_device():
    assert why_unavailable("reference", "meta") == "needs device cpu or cuda; try cpu"


def test_triton_on_a_cpu_needs_its_interpreter(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "TRITON_INTERPRET=1" in why_unavailable("triton", "cpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert why_unavailable("triton", "cpu") is None


def test_triton_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"kernels='triton' .*; needs the package triton, which is not installed"):
        select("triton", "cpu")


def test_compiled_on_a_cpu_needs_a_compiler(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "my-compiler")
    with pytest.raises(ValueError, match=r"kernels='compiled' .*; needs a C\+\+ compiler, and my-compiler is not"):
        select("compiled", "cpu")

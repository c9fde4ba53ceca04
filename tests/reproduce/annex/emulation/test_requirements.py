"""What is missing is said in a sentence each, before anything runs."""

import sys

import pytest

from reproduce.annex.emulation import NetworkUnavailableError, requirements
from reproduce.annex.emulation.network import Network


def tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)


def test_no_tools(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("reproduce.annex.emulation.machine.ELSEWHERE", ())
    assert requirements() == ("ip is not on PATH: install iproute2", "tc is not on PATH: install iproute2")


def test_tools_outside_path(monkeypatch, tmp_path):
    tool(tmp_path, "tc", "")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("reproduce.annex.emulation.machine.ELSEWHERE", (str(tmp_path),))
    assert requirements()[1] == f"tc is in {tmp_path}, which is not on PATH: export PATH=$PATH:{tmp_path}"


def test_not_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert requirements() == ("emulated nodes are Linux network namespaces, and this is darwin",)


def test_what_the_kernel_refuses(monkeypatch, tmp_path):
    for name in ("ip", "tc"):
        tool(tmp_path, name, "import sys; sys.stderr.write('Operation not permitted'); sys.exit(2)")
    monkeypatch.setenv("PATH", str(tmp_path))
    (sentence,) = requirements()
    assert "not permitted" in sentence or "may not create a namespace" in sentence
    assert sentence.endswith("run as root, or allow unprivileged user namespaces")


def test_a_network_that_cannot_be_made_leaves_no_process(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    network = Network(ranks=2, per_node=1, rate=1e6)
    with pytest.raises(NetworkUnavailableError, match="could not be made"), network:
        pass
    assert network._fabric.poll() is not None

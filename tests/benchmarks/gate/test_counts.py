"""What a step does, in numbers that two runs of the same code share."""

from pathlib import Path

import pytest

from benchmarks.gate.counts import counted


def test_bytes_read_and_written_are_those_of_the_step(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 12345)

    def step() -> None:
        target.write_bytes(source.read_bytes()[:67])

    found = counted(step, tmp_path, [])
    assert (found["bytes read"], found["bytes written"]) == (12345, 67)
    assert (found["opened source"], found["opened target"]) == (1, 1)
    assert {what: n for what, n in counted(lambda: None, tmp_path, []).items() if what.startswith("bytes")} == {
        "bytes read": 0,
        "bytes written": 0,
    }


def test_what_a_step_keeps_is_told_from_what_it_needs_meanwhile(tmp_path: Path) -> None:
    kept: list[bytes] = []
    leaks = counted(lambda: kept.append(bytes(50_000)), tmp_path, [])
    returns = counted(lambda: len(bytes(50_000)), tmp_path, [])
    assert (leaks["16 KiB allocated that stay"], returns["16 KiB allocated that stay"]) == (3, 0)
    assert returns["16 KiB allocated at the peak"] == 3


def test_operators_of_torch_their_bytes_and_what_waits_are_counted(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    numbers = torch.ones(10)

    def step() -> float:
        return float((numbers + 1).sum())

    found = counted(step, tmp_path, [])
    assert found["torch aten.add.Tensor"] == found["torch aten.sum.default"] == 1
    assert found["torch bytes of results"] == 40 + 4
    assert found["torch synchronisations"] == 1

"""What is counted of files, process groups and threads, and where."""

import builtins
import io
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ptdp_core.engine import data, files
from ptdp_core.engine.checkpoint import folder, state
from ptdp_core.launch.local import RankError
from reproduce.annex.exact import comparison, counts, engine, resources, usage
from results.records.errors import UnavailableError


def test_a_checksum_opens_reads_and_hashes(tmp_path):
    (tmp_path / "shard").write_bytes(bytes(5000))
    with usage.counting(tmp_path) as used:
        assert files.checksum(Path("shard")) == f"{zlib.crc32(bytes(5000)):08x}"
    assert used.by_function() == {"files.checksum": "5000 bytes hashed, 5000 bytes read, 1 files opened"}


def test_a_count_is_named_by_two_callers_and_may_come_from_a_thread(tmp_path):
    (tmp_path / "state.json").write_bytes(b"{}")
    with usage.counting(tmp_path) as used, ThreadPoolExecutor(1) as pool:
        pool.submit(folder.problem, tmp_path).result()
        pool.submit(state.read_state, tmp_path).exception()
    # The manifest, which is not there, is not opened.
    assert used.by_function() == {"state.read_state > files.read_json": "2 bytes read, 1 files opened"}


def test_texts_and_files_without_buffer_count_in_bytes(tmp_path):
    with usage.counting(tmp_path) as used:
        (tmp_path / "of the test").write_text("größer", encoding="utf-8")
        files.write_durably(tmp_path / "state.json", ["größer".encode()])
        files.lock("save", tmp_path / ".lock").close()
    assert (tmp_path / "state.json").read_text(encoding="utf-8") == "größer"
    assert used.by_function() == {
        "files.write_durably": "8 bytes hashed, 8 bytes written, 1 files opened",
        "files.lock": "1 files opened",
    }


def test_a_mapped_file_is_opened_and_only_its_head_read(tmp_path):
    data.write_tokens(tmp_path / "run.tokens", np.arange(50), 50)
    with usage.counting(tmp_path) as used:
        assert data.open_tokens("run.tokens").ids.sum() == 49 * 50 // 2
    expected = f"{data.HEADER.size} bytes read, 2 files opened"
    assert used.by_function() == {"data.open_tokens > data._open_own": expected}


def test_files_opened_by_a_descriptor_count_as_those_opened_by_a_path(tmp_path):
    (tmp_path / "tokens").write_bytes(bytes(24))
    with usage.counting(tmp_path) as used:
        assert files.checksum(Path("tokens")) == f"{zlib.crc32(bytes(24)):08x}"
        descriptor = os.open(os.devnull, os.O_RDONLY)
        with open(descriptor, "rb") as elsewhere:
            elsewhere.read()
    assert used.by_function() == {"files.checksum": "24 bytes hashed, 24 bytes read, 1 files opened"}
    assert os.open.__module__ == os.name


def test_files_elsewhere_and_other_people_s_calls_do_not_count(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"12")
    inside = tmp_path / "inside"
    inside.mkdir()
    with usage.counting(inside) as used:
        (inside / "of the test").write_text("ours")
        assert files.checksum(tmp_path / "elsewhere")
    assert used.by_function() == {"files.checksum": "2 bytes hashed"}


def test_nothing_is_counted_any_more_afterwards(tmp_path):
    before = (builtins.open, io.open, zlib.crc32, Path.cwd())
    with pytest.raises(ZeroDivisionError), usage.counting(tmp_path):
        raise ZeroDivisionError
    assert (builtins.open, io.open, zlib.crc32, Path.cwd()) == before


def test_ranks_that_use_the_same_are_one_text():
    alike, differing = {"a.f": "1 files opened"}, {"a.f": "1 files opened", "a.g": "2 files opened"}
    same, other = ({"resources": used} for used in (alike, differing))
    assert engine.transposed([same, same]) == same
    assert engine.transposed([same, other])["resources"]["a.g"] == ["", "2 files opened"]


def test_a_rank_that_fails_says_so_in_one_line(monkeypatch):
    def launch(*args, **options):
        raise RankError(1, 1, "failed: ValueError: no\nTraceback")

    monkeypatch.setattr(resources, "launch", launch)
    assert {entry.problem for entry in resources.collect().values()} == {"rank 1 failed: ValueError: no"}


def test_without_torch_the_section_is_unavailable_not_green(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="need torch"):
        resources.collect()


def test_with_another_release_of_torch_it_is_not_compared(monkeypatch):
    monkeypatch.setattr(counts, "release", lambda: "2.99")
    result = comparison.check(["layout", "counts", "resources"])
    assert result.sections.keys() == {"layout"}
    assert result.skipped.keys() == {"counts", "resources"}
    assert "this is 2.99" in result.skipped["resources"]

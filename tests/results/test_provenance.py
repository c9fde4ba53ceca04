"""Provenance: it says what made the numbers, never who or where, and never fails."""

import getpass
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy  # loaded, so that its version is found
import pytest

from results import ROOT
from results.records import ClusterRef, Record, provenance, read_record, write_record

DIGEST = "0123456789abcdef" * 4


def test_provenance_is_valid_and_names_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/data/people/aloysia")
    monkeypatch.setenv("USER", "aloysia")
    monkeypatch.setattr(platform, "node", lambda: "node-aloysia")
    command = ["/data/people/aloysia/work/reproduce", "all", "--results", "/scratch/aloysia", "--seed=1"]
    made_by = provenance.collect(
        command, datetime(2021, 11, 14, 9, tzinfo=UTC), 0.5, 1, ClusterRef("selene", DIGEST), DIGEST, ("jsonschema",)
    )
    record = Record("benchmark", "gemm", "GEMM", None, "measured", "laptop", "complete", made_by)
    path = tmp_path / "r.json"
    write_record(record, path)
    assert read_record(path) == record
    text = path.read_text()
    assert "aloysia" not in text
    real = [str(Path.cwd()), str(ROOT), sys.prefix, sys.executable, os.uname().nodename]
    for secret in [*real, *([getpass.getuser()] if getpass.getuser() != "root" else [])]:
        assert secret not in text
    assert made_by.command == ("reproduce", "all", "--results", "~", "--seed=1")
    assert made_by.started == "2021-11-14T09:00:00Z"
    assert made_by.versions["python"] == platform.python_version()
    assert {"ptdp", "jsonschema"} <= set(made_by.versions)
    assert made_by.versions["numpy"] == numpy.__version__
    assert made_by.host.memory_bytes is None or made_by.host.memory_bytes > 2**28


@pytest.mark.parametrize(
    ("argument", "scrubbed"),
    [
        ("/home/bob", "~"),
        ("/home/bob/runs/", "runs"),
        ("-I/home/bob", "-I~"),
        ("/Users/bob/x.json", "x.json"),
        ("C:\\Users\\bob\\x.json", "x.json"),
        ("--results=/scratch/bob/out", "--results=out"),
        ("../../bob/out", "out"),
        ("~bob/out", "out"),
        ("file:///srv/bob/out", "file:out"),
        ("/a/b:/c/d,/e", "b:d,e"),
        ("{'x': '/a/b'}", "{'x': 'b'}"),
        ("node17:29500", "<host>:29500"),
        ("--rdzv-endpoint=node17", "--rdzv-endpoint=<host>"),
        ("\udcff", "?"),
        *((same, same) for same in ("/", "..", "a/b", "results/runs", "./x", "tokens/s", "https://a.org/b", "1:10")),
    ],
)
def test_arguments_are_scrubbed(argument, scrubbed):
    assert provenance.scrub_command([argument]) == (scrubbed,)


def test_an_address_after_its_option_is_scrubbed():
    command = ["torchrun", "--master-addr", "node17", "--host", "-x"]
    assert provenance.scrub_command(command) == ("torchrun", "--master-addr", "<host>", "--host", "-x")


def test_time_is_in_utc():
    time = datetime(2021, 11, 14, 10, 30, tzinfo=timezone(timedelta(hours=1)))
    assert provenance.timestamp(time) == "2021-11-14T09:30:00Z"
    assert provenance.timestamp().endswith("Z")


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path / "checkout"
    (root / "kernels").mkdir(parents=True)
    (root / "kernels" / "a.py").write_text("1")
    git(root, "init", "-q")
    return root


def git(root, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def test_git_state(checkout):
    assert provenance.git_state(checkout) == (None, None)  # no commit yet
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "one")
    commit = git(checkout, "rev-parse", "HEAD").strip()
    assert provenance.git_state(checkout) == (commit, False)
    (checkout / "notes.txt").write_text("no source")
    assert provenance.git_state(checkout) == (commit, False)
    (checkout / "kernels" / "b.py").write_text("new")
    assert provenance.git_state(checkout) == (commit, True)


def test_a_folder_inside_another_checkout_has_no_commit(checkout):
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "one")
    assert provenance.git_state(checkout / "kernels") == (None, None)


def test_nothing_to_find_out_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    monkeypatch.setattr(platform, "release", lambda: "")
    assert provenance.git_state(ROOT) == (None, None)
    host = provenance.host()
    assert (host.memory_bytes, host.gpus, host.gpu_count) == (None, (), 0)


@pytest.mark.parametrize(
    ("script", "gpus", "count"),
    [
        ("echo NVIDIA H200; echo NVIDIA H200", ("NVIDIA H200",), 2),
        ("echo NVIDIA-SMI has failed; exit 9", (), 0),
        ("", (), 0),
    ],
)
def test_gpus_come_from_nvidia_smi(script, gpus, count, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    host = provenance.host()
    assert (host.gpus, host.gpu_count) == (gpus, count)

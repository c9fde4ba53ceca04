"""Cluster files from others' tables: numbers recovered from tables that a known cluster made, and bad tables."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.kernels import KernelModel
from reproduce import cli
from reproduce.annex.calibrate.tables import PRODUCTS
from results.records.errors import DONE
from results.records.validation import check_document

SHAPES = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 4096, 16384) for k in (1024, 8192)]
# Bytes on the bus over (n-1)/n of the size, as nccl-tests counts them; 'broadcast' stands for what is none of ours.
FACTORS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 0.5}
TRUE = replace(load_cluster("h100"), gemm_plateau=0.5, attention_forward=0.3, attention_backward=0.25)


def gemm_table(path: Path) -> Path:
    kernels = KernelModel(TRUE)
    rows = [f"{m},{n},{k},{1e6 * kernels.gemm(m, n, k)}" for m, n, k in SHAPES]
    path.write_text("\n".join(["M,N,K,us", *rows]))
    return path


def attention_table(path: Path) -> Path:
    kernels, rows = KernelModel(TRUE), []
    for seq in (1024, 4096, 16384):
        for name, products in PRODUCTS.items():
            flops = 2.0 * products * 2 * 16 * seq**2 * 128
            seconds = kernels.attention(flops, seq, 128, name == "backward", 2 * 16 * seq)
            rows.append(f"2,{seq},16,128,{name},{seconds}")
    path.write_text("\n".join(["batch,seq,heads,head_size,pass,seconds", *rows]))
    return path


def nccl_output(path: Path, ranks: int, latency: float, bandwidth: float, name: str = "all_reduce") -> Path:
    """What nccl-tests prints, out of place and in place, for times of latency + bytes on the bus / bandwidth."""
    factor = FACTORS[name] * (ranks - 1) / ranks
    operation = "none" if name == "all_gather" else "sum"
    lines = ["# nThread 1 nGpus 8 minBytes 1048576", *(f"#  Rank  {rank} Group  0 Pid 1 on x" for rank in range(ranks))]
    for size in (2**20, 2**24, 2**28, 2**32):
        us = 1e6 * (latency + factor * size / bandwidth)
        algorithm = size / us / 1e3
        bus = f"{algorithm:.2f} {factor * algorithm:.2f} 0"
        lines.append(f" {size:11} {size // 4:11} float {operation} -1 {us:.2f} {bus} {us:.2f} {bus}")
    path.write_text("\n".join(lines))
    return path


def test_numbers_are_recovered_from_the_tables_of_a_known_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.toml"
    given = ["--gemm", str(gemm_table(tmp_path / "g.csv")), "--attention", str(attention_table(tmp_path / "a.csv"))]
    given += ["--collectives", str(nccl_output(tmp_path / "n.txt", 8, 40e-6, 350e9))]
    assert cli.main(["calibrate", "--out", str(out), "--base", "h100", "--json", *given]) == DONE
    document = json.loads(capsys.readouterr().out)
    check_document(document, "calibrate-tables-1", "calibrate-tables")
    assert max(document["errors"].values()) < 0.01
    made = load_cluster(str(out))
    assert (made.attention_forward, made.attention_backward) == pytest.approx((0.3, 0.25), rel=0.001)
    assert KernelModel(made).gemm(4096, 4096, 4096) == pytest.approx(KernelModel(TRUE).gemm(4096, 4096, 4096), rel=0.02)
    assert made.nvlink_latency_8 == pytest.approx(40e-6, rel=0.01)
    assert made.nvlink_bandwidth_8 == pytest.approx(350e9, rel=0.001)
    assert made.nvlink_bandwidth_4 == TRUE.nvlink_bandwidth_4  # what no table says is the base's


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--gemm", "m,n\n1,2\n", "lacks the column 'k'"),
        ("--gemm", "m,n,k\n1,2,3\n", "has no time"),
        ("--gemm", "m,n,k,us\n" + "8,8,8,1\n" * 2, "has 2 rows; needs at least 3"),
        ("--gemm", "m,n,k,us\n" + "8,8,8,1\n" * 2 + "8,x,8,1\n", "line 4: n='x' is no number above 0"),
        ("--attention", "batch,seq,heads,head_size,pass,us\n" + "1,8,8,8,both,1\n" * 3, "line 2: pass='both'"),
        ("--collectives", "nothing\n", "has 0 lines with a size and a time"),
    ],
)
def test_a_bad_table_is_said_in_one_line_and_nothing_is_written(
    option: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "table", tmp_path / "mine.toml"
    table.write_text(content)
    assert cli.main(["calibrate", "--out", str(out), option, str(table)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_gather_and_a_scatter_take_the_place_of_an_all_reduce(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    gather = nccl_output(tmp_path / "gather", 4, 30e-6, 300e9, "all_gather")
    scatter = nccl_output(tmp_path / "scatter", 4, 20e-6, 600e9, "reduce_scatter")
    given = ["--base", "h100", "--collectives", str(gather), "--collectives", str(scatter)]
    assert cli.main(["calibrate", "--out", str(out), *given]) == DONE
    made = load_cluster(str(out))
    size = 2**28  # bytes that both move, and an all-reduce twice
    both = 50e-6 + 3 / 4 * size / 300e9 + 3 / 4 * size / 600e9
    alone = made.nvlink_latency_4 + 2 * 3 / 4 * size / made.nvlink_bandwidth_4
    assert alone == pytest.approx(both, rel=1e-3)
    assert made.nvlink_latency_4 == pytest.approx(50e-6, rel=0.01)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["reduce_scatter"], "collectives of 8 GPUs are reduce_scatter; needs an all_reduce, or both"),
        (["all_reduce", "all_gather"], "are all_reduce and all_gather; needs an all_reduce, or both"),
        (["all_reduce", "all_reduce"], "is a second all_reduce of 8 GPUs; needs one"),
        (["broadcast"], "bus over algorithm bandwidth is 0.438 on 8 GPUs"),
    ],
)
def test_collectives_that_do_not_make_an_all_reduce_are_refused(
    names: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"--collectives={nccl_output(tmp_path / name, 8, 40e-6, 350e9, name)}" for name in names]
    assert cli.main(["calibrate", "--out", str(tmp_path / "m.toml"), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m.toml").exists()


@pytest.mark.parametrize("bus", [200.0, 1000.0])
def test_bandwidths_that_no_number_of_gpus_has_are_refused(
    bus: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f" {size} {size // 4} float sum -1 10.0 100.0 {bus} 0 10.0 100.0 {bus} 0" for size in (1024, 2048, 4096)]
    (tmp_path / "odd").write_text("\n".join(lines))
    assert cli.main(["calibrate", "--out", str(tmp_path / "m.toml"), f"--collectives={tmp_path / 'odd'}"]) == 2
    assert "bus over algorithm bandwidth is" in capsys.readouterr().err


def test_tables_and_measuring_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = gemm_table(tmp_path / "g.csv")
    assert cli.main(["calibrate", "--out", str(tmp_path / "m.toml"), "--gemm", str(table), "--check"]) == 2
    assert "--check has no part" in capsys.readouterr().err

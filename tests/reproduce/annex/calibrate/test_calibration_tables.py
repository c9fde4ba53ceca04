"""Cluster files from others' tables: numbers recovered from tables that a known cluster made, and bad tables."""

from dataclasses import replace

import pytest

from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.network import Group, NetworkModel
from reproduce.annex.calibrate.measured_tables import PRODUCTS
from results.records.validation import check

SHAPES = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 4096, 16384) for k in (1024, 8192)]
# Bytes on the bus over (n-1)/n of the size, as nccl-tests counts them; 'broadcast' stands for what is none of ours.
FACTORS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 0.5}
TRUE = replace(load_cluster("h100"), gemm_plateau=0.5, attention_forward=0.3, attention_backward=0.25)


def gemm_table(path):
    kernels = KernelModel(TRUE)
    rows = [f"{m},{n},{k},{1e6 * kernels.gemm(m, n, k)}" for m, n, k in SHAPES]
    path.write_text("\n".join(["M,N,K,us", *rows]))
    return path


def attention_table(path):
    kernels, rows = KernelModel(TRUE), []
    for seq in (1024, 4096, 16384):
        for name, products in PRODUCTS.items():
            flops = 2.0 * products * 2 * 16 * seq**2 * 128
            seconds = kernels.attention(flops, seq, 128, name == "backward", 2 * 16 * seq)
            rows.append(f"2,{seq},16,128,{name},{seconds}")
    path.write_text("\n".join(["batch,seq,heads,head_size,pass,seconds", *rows]))
    return path


def nccl_output(path, ranks, latency, bandwidth, name="all_reduce"):
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


@pytest.fixture
def made(tmp_path, said):
    """The cluster that `calibrate` makes of these tables and h100."""

    def calibrated(*given, network=False):
        said("calibrate", "--out", tmp_path / "mine.toml", "--base", "h100", *given)
        return load_cluster(f"{'h100+' if network else ''}{tmp_path / 'mine.toml'}")

    return calibrated


def test_a_test_that_is_not_one_of_ours_is_refused_by_its_name(tmp_path, made, refused):
    """An all-to-all has an all-gather's ratio of bandwidths; releases that say which test it is tell them apart."""
    files = [nccl_output(tmp_path / name, 8, 40e-6, 350e9, name) for name in ("all_gather", "reduce_scatter")]
    files[0].write_text(f"# Collective test starting: all_gather_perf\n{files[0].read_text()}")
    made("--collectives", *files)
    files[0].write_text(files[0].read_text().replace("all_gather_perf", "alltoall_perf"))
    line = refused("calibrate", "--base", "h100", "--collectives", *files, "--out", tmp_path / "another.toml")
    assert "is of alltoall_perf; needs an all-reduce, all-gather or reduce-scatter" in line


def test_numbers_are_recovered_from_the_tables_of_a_known_cluster(tmp_path, as_json):
    out = tmp_path / "mine.toml"
    given = ["--gemm", gemm_table(tmp_path / "g.csv"), "--attention", attention_table(tmp_path / "a.csv")]
    given += ["--collectives", nccl_output(tmp_path / "n.txt", 8, 40e-6, 350e9)]
    document = as_json("calibrate", "--out", out, "--base", "h100", *given)
    check(document, "calibrate-tables-1", "calibrate-tables")
    assert max(document["errors"].values()) < 0.01
    made = load_cluster(str(out))
    assert (made.attention_forward, made.attention_backward) == pytest.approx((0.3, 0.25), rel=0.001)
    assert KernelModel(made).gemm(4096, 4096, 4096) == pytest.approx(KernelModel(TRUE).gemm(4096, 4096, 4096), rel=0.02)
    assert made.nvlink_latency_8 == pytest.approx(40e-6, rel=0.01)
    assert made.nvlink_bandwidth_8 == pytest.approx(350e9, rel=0.001)
    assert made.nvlink_bandwidth_4 == TRUE.nvlink_bandwidth_4  # what no table says is the base's


def test_a_gather_and_a_scatter_take_the_place_of_an_all_reduce(tmp_path, made):
    gather = nccl_output(tmp_path / "gather", 4, 30e-6, 300e9, "all_gather")
    scatter = nccl_output(tmp_path / "scatter", 4, 20e-6, 600e9, "reduce_scatter")
    cluster = made("--collectives", gather, "--collectives", scatter)
    size = 2**28  # bytes that both move, and an all-reduce twice
    both = 50e-6 + 3 / 4 * size / 300e9 + 3 / 4 * size / 600e9
    alone = cluster.nvlink_latency_4 + 2 * 3 / 4 * size / cluster.nvlink_bandwidth_4
    assert alone == pytest.approx(both, rel=1e-3)
    assert cluster.nvlink_latency_4 == pytest.approx(50e-6, rel=0.01)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["reduce_scatter"], "collectives of 8 GPUs are reduce_scatter; needs an all_reduce, or both"),
        (["all_reduce", "all_gather"], "are all_reduce and all_gather; needs an all_reduce, or both"),
        (["all_reduce", "all_reduce"], "is a second all_reduce of 8 GPUs; needs one"),
        (["broadcast"], "bus over algorithm bandwidth is 0.438 on 8 GPUs"),
    ],
)
def test_collectives_that_do_not_make_an_all_reduce_are_refused(names, message, tmp_path, refused):
    given = [f"--collectives={nccl_output(tmp_path / name, 8, 40e-6, 350e9, name)}" for name in names]
    assert message in refused("calibrate", "--out", tmp_path / "m.toml", *given)
    assert not (tmp_path / "m.toml").exists()


@pytest.mark.parametrize("bus", [200.0, 1000.0])
def test_bandwidths_that_no_number_of_gpus_has_are_refused(bus, tmp_path, refused):
    lines = [f" {size} {size // 4} float sum -1 10.0 100.0 {bus} 0 10.0 100.0 {bus} 0" for size in (1024, 2048, 4096)]
    (tmp_path / "odd").write_text("\n".join(lines))
    line = refused("calibrate", "--out", tmp_path / "m.toml", f"--collectives={tmp_path / 'odd'}")
    assert "bus over algorithm bandwidth is" in line


def test_tables_and_measuring_do_not_mix(tmp_path, refused):
    table = gemm_table(tmp_path / "g.csv")
    assert "--check has no part" in refused("calibrate", "--out", tmp_path / "m.toml", "--gemm", table, "--check")


def test_collectives_over_several_nodes_make_a_network_file(tmp_path, said):
    """Four nodes of 8: a ring's bytes are those of a node's eight adapters, whatever the library took."""
    out = tmp_path / "fabric.toml"
    given = ["--base", "h100", "--collectives", str(nccl_output(tmp_path / "n.txt", 32, 160e-6, 320e9))]
    printed = said("calibrate", "--out", out, *given)
    assert "4 nodes of 8: 320 GB/s on the bus" in printed
    assert f"--cluster h100 --network {out}" in printed
    assert "base =" not in out.read_text()
    made = load_cluster(f"h100+{out}")
    numbers = made.hca_bandwidth, made.tensor_hca_bandwidth, made.allreduce_hca_bandwidth
    assert numbers == pytest.approx((40e9,) * 3, rel=1e-3)
    assert made.p2p_bandwidth == pytest.approx(40e9 * 40 / 46, rel=1e-3)
    assert made.tree_hop_latency == pytest.approx(160e-6 / 18, rel=0.01)
    assert made.gemm_plateau == load_cluster("h100").gemm_plateau
    size = 2**32
    measured = 160e-6 + 2 * 31 / 32 * size / 320e9
    assert NetworkModel(made).all_reduce(Group(32, 8), size, gradients=True) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("bus", "adapter"), [(320e9, 40.0), (480e9, 46.0), (800e9, 53.3)])
def test_over_two_nodes_what_an_adapter_sends_is_between_a_tree_s_and_a_ring_s(bus, adapter, tmp_path, made):
    """NCCL's tree sends each byte once over two nodes, a ring 15/8 of it: h100's 46 GB/s where both allow that."""
    cluster = made("--collectives", nccl_output(tmp_path / "n.txt", 16, 100e-6, bus), network=True)
    assert cluster.tensor_hca_bandwidth == cluster.hca_bandwidth == pytest.approx(adapter * 1e9, rel=0.01)
    assert cluster.allreduce_hca_bandwidth == pytest.approx(bus / 8, rel=1e-3)


def test_both_inside_a_node_and_between_nodes_make_a_cluster(tmp_path, made):
    files = [nccl_output(tmp_path / "a", 8, 40e-6, 350e9), nccl_output(tmp_path / "b", 32, 160e-6, 320e9)]
    cluster = made("--collectives", *files)
    assert cluster.nvlink_bandwidth_8 == pytest.approx(350e9, rel=1e-3)
    assert cluster.tensor_hca_bandwidth == pytest.approx(40e9, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "hosts", "message"),
    [
        ((12,), "x", "is of 12 GPUs; needs 2, 4 or 8 of one node, or whole nodes of 8"),
        ((16,), "xyzw", "is of 16 GPUs on 4 nodes; needs the base's 8 a node; try a --base with gpus_per_node=4"),
        ((16, 32), "", "collectives over several nodes are of 16 and 32 GPUs; needs one number"),
    ],
)
def test_collectives_of_other_nodes_are_refused_in_one_line(ranks, hosts, message, tmp_path, refused):
    given = []
    for number in ranks:
        path = nccl_output(tmp_path / str(number), number, 100e-6, 300e9)
        lines = path.read_text().splitlines()
        named = [
            f"#  Rank  {rank} Group  0 Pid 1 on {hosts[rank % len(hosts)]} device 0" for rank in range(number) if hosts
        ]
        path.write_text("\n".join([*named, *(line for line in lines if "Rank" not in line)]))
        given.append(f"--collectives={path}")
    assert message in refused("calibrate", "--out", tmp_path / "m.toml", "--base", "h100", *given)
    assert not (tmp_path / "m.toml").exists()

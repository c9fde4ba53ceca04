"""Changes of the engine and the schedules in a copy of the sources: each is caught, with a message that names it."""

import json
import os
import subprocess
import sys

import pytest

from reproduce.annex.exact.mutations import copy
from results.records import errors

ALL_REDUCE = (
    "ptdp_core/engine/tensor_parallel.py",
    "        ctx.mark_dirty(x)\n",
    "        ctx.mark_dirty(x)\n        torch.distributed.all_reduce(x.clone(), group=tp.group)\n",
)
NO_SCATTER_GATHER = ("ptdp_core/layout/communication.py", "parallel.t if scattered else 1", "1")
ORDER = "def order(p: int, m: int, v: int) -> Order:\n"  # how every schedule's own order begins


@pytest.fixture
def mutant(tmp_path):
    """The differences that the checks of these sections find after the edits in a copy."""
    copy(tmp_path)

    def run(sections, *edits):
        for file, old, new in edits:
            source = (tmp_path / file).read_text()
            assert source.count(old) == 1, f"{file} has {source.count(old)} times: {old}"
            (tmp_path / file).write_text(source.replace(old, new))
        done = subprocess.run(
            [sys.executable, "-m", "reproduce", "gate", "exact", *sections.split(), "--json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == errors.REGRESSED, done.stdout + done.stderr
        return json.loads(done.stdout)["differences"]

    return run


def changed(difference, name):
    """Old and new of a quantity, by entry and rank."""
    changes = difference["changes"] + difference["with_it"]
    return {(c["entry"], c["rank"]): (c["old"], c["new"]) for c in changes if c["name"] == name}


def names_the_all_reduce(difference):
    """One more in g, past the engine's own count of its calls."""
    calls = changed(difference, "tp all_reduce calls")
    # Two layers a rank, forward and recomputed, two linears each, 4 microbatches; the first stage's embedding, too.
    more = [new - old for rank in range(4) for old, new in [calls["p=2 t=2 B=4 layers=4", rank]]]
    return more == [36, 36, 32, 32] and "more tp all_reduce: +" in difference["headline"]


def names_scatter_gather(difference):
    """Every boundary tensor is sent whole, and none is gathered, where it was on."""
    sizes = changed(difference, "message bytes")
    on = {entry for entry, _ in sizes}
    return (
        bool(sizes)
        and all(new == 2 * old for old, new in sizes.values())
        and not any("scatter_gather=false" in entry for entry in on)
        and "scatter/gather lost: boundary tensors are sent whole" in difference["headline"]
        and "no tp all_gather any more" in difference["headline"]
    )


@pytest.mark.slow
def test_an_added_all_reduce(mutant):
    (difference,) = mutant("engine", ALL_REDUCE)
    assert names_the_all_reduce(difference)
    assert {c["name"] for c in difference["changes"]} == {"tp all_reduce calls", "tp all_reduce bytes"}
    assert difference["with_it"] == []


@pytest.mark.slow
def test_a_lost_scatter_gather(mutant):
    (difference,) = mutant("engine", NO_SCATTER_GATHER)
    assert names_scatter_gather(difference)
    assert not changed(difference, "tp all_reduce calls")


def test_a_lost_scatter_gather_in_the_simulator(mutant):
    (difference,) = mutant("simulated", NO_SCATTER_GATHER)
    assert difference["headline"].startswith("communication (simulated): scatter/gather lost")
    sizes = changed(difference, "pipeline bytes")
    old, new = sizes["Figure 18, scatter/gather on, B=48", None]
    assert new == 8 * old
    assert ("Figure 18, scatter/gather off, B=48", None) not in sizes


@pytest.mark.slow
def test_one_swapped_action(mutant):
    """On the last rank the second forward pass goes before the first backward pass."""
    edit = (
        "ptdp_core/schedules/zoo/one_f_one_b.py",
        ORDER,
        f"{ORDER}    *others, last = right_order(p, m, v)\n"
        "    return [*others, [last[0], last[2], last[1], *last[3:]] if m > 1 else last]\n\n\n"
        f"{ORDER.replace('order', 'right_order')}",
    )
    (difference,) = [d for d in mutant("simulated schedules", edit) if "1f1b" in d["headline"]]
    assert difference["kind"] == "order"
    assert "1f1b p=1 m=2 v=1, rank 0: 0B0 and 0F1 swapped (positions 1 and 2)" in difference["headline"]
    table = changed(difference, "table")
    assert {rank for entry, rank in table if entry == "1f1b p=4 m=6 v=1"} == {3}
    assert not any(entry.startswith(("gpipe", "interleaved")) for entry, _ in table)
    assert changed(difference, "peak stash")["1f1b p=4 m=6 v=1", 3] == (1, 2)
    assert changed(difference, "iteration ns")


@pytest.mark.slow
def test_a_swapped_action_that_deadlocks(mutant):
    """Such a program is not run; the message still names the action."""
    edit = (
        "ptdp_core/schedules/zoo/interleaved.py",
        ORDER,
        f"{ORDER}    (first, second, *rest), *others = right_order(p, m, v)\n"
        "    return [[second, first, *rest], *others]\n\n\n"
        f"{ORDER.replace('order', 'right_order')}",
    )
    (difference,) = mutant("schedules", edit)
    assert "interleaved p=2 m=2 v=2, rank 0: 0F0 and 0F1 swapped (positions 0 and 1)" in difference["headline"]
    runs = changed(difference, "blocking program runs")["interleaved p=2 m=2 v=2", None]
    assert runs[0] == "yes"
    assert "disagree on message 0" in runs[1]


@pytest.mark.slow
def test_an_all_reduce_in_the_simulator(mutant):
    edit = (
        "ptdp_core/layers/techniques.py",
        "(*forward, *(reduce,) * part.g)",
        "(*forward, *(reduce,) * (2 * part.g if part.name == 'mlp.down' else part.g))",
    )
    (difference,) = mutant("simulated", edit)
    assert difference["headline"].startswith("communication (simulated): more layer forward all-reduces: +1 (in ")
    old, new = changed(difference, "iteration ns")["Figure 12, interleaved, B=12", None]
    assert new > old


@pytest.mark.slow
def test_a_parameter_of_the_cluster_is_one_message(mutant):
    edit = ("ptdp_core/simulator/clusters/selene.toml", "value = 0.77", "value = 0.76")
    (difference,) = mutant("simulated", edit)
    assert difference["headline"] == "cluster parameters (simulated): gemm_plateau 0.77 -> 0.76"
    assert len(changed(difference, "iteration ns")) > 100

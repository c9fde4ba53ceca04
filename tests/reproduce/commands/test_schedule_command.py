"""`reproduce schedule`: all schedules side by side, one from a file, and the search under a memory limit."""

import json
import re
from fractions import Fraction
from types import SimpleNamespace

import pytest

from ptdp_core.schedules import Schedule, build, check_complete, exists, names, peak_stash
from ptdp_core.simulator.steady_state import short_batches
from reproduce.annex.schedules.family import family, table
from reproduce.annex.schedules.search import greedy, lower_bound, makespan
from reproduce.cli import main
from results import ROOT

EQUAL = (1, 2, 1)


pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def run(capsys, tmp_path):
    def run(*arguments):
        code = main(["schedule", *map(str, arguments), "--results", str(tmp_path / "results")])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_all_schedules_side_by_side(run):
    code, out, _ = run("--json", "-p", "4", "-m", "8")
    document = json.loads(out)
    assert code == 0
    assert [row["schedule"] for row in document["schedules"]] == list(names())
    rows = {row["schedule"]: {k: m["value"] for k, m in row["metrics"].items()} for row in document["schedules"]}
    assert rows["1f1b"] == {
        "makespan": 33, "bubble_fraction": 0.375, "own_bubble_fraction": 0.375, "peak_stash": 4, "relative_messages": 1,
    }  # fmt: skip
    assert rows["zb-v"]["own_bubble_fraction"] == 0
    assert rows["v-half"]["relative_messages"] == 2


def test_a_module_of_the_zoo_is_listed_once_and_a_changed_copy_beside_it(run, tmp_path):
    module, known = ROOT / "ptdp_core" / "schedules" / "zoo" / "eager_1f1b.py", names()

    def listed(file):
        code, out, _ = run(file, "--json")
        assert code == 0
        return [row["schedule"] for row in json.loads(out)["schedules"]]

    assert listed(module) == ["eager-1f1b", *(name for name in known if name != "eager-1f1b")]
    (tmp_path / "eager.py").write_text(module.read_text().replace("2 * (p - rank - 1)", "p - rank"))
    assert listed(tmp_path / "eager.py") == ["eager-1f1b (own)", *known]


def test_a_schedule_whose_ranks_share_the_vocabulary_is_drawn_and_compared_by_its_name(run, tmp_path):
    """S and T take a quarter of F each; the bubble is 1F1B's, over ideal time with them."""
    code, out, _ = run("1f1b+vocab-1", "-p", "4", "-m", "8", "--export", "perfetto", "--json")
    (row,) = json.loads(out)["schedules"]
    assert code == 0
    assert row["metrics"]["bubble_fraction"]["value"] == pytest.approx(3 * 3 / (8 * 3.5))
    assert row["metrics"]["makespan"]["value"] == 8 * 3.5 + 3 * 3
    assert row["metrics"]["peak_stash"]["value"] == 4 + 2
    (trace,) = (tmp_path / "results").rglob("trace.json")
    categories = {event.get("cat") for event in json.loads(trace.read_text())["traceEvents"]}
    assert categories >= {"forward", "backward", "logits", "logits' gradient"}
    _, out, _ = run("v-half+vocab-2", "-p", "2", "-m", "3")
    assert "S: logits, T: logits' gradient" in out


@pytest.mark.slow
def test_a_step_with_a_shared_vocabulary_has_1f1b_s_gradients(run):
    code, out, _ = run("1f1b+vocab-2", "-p", "2", "-m", "3", "--train", "--json")
    assert code == 0
    assert all(each["largest"] < 1e-12 for each in json.loads(out)["gradients"])


@pytest.mark.slow
def test_torchs_own_tables(run, tmp_path):
    """ZBV and DualPipeV as torch 2.13 writes them: checked, compared, and exactly the zoo's, fused pairs included."""
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for torchs, ours in (("ScheduleZBVZeroBubble", "zb-v"), ("ScheduleDualPipeV", "dualpipev-overlap")):
        stages = [
            SimpleNamespace(num_stages=6, group_size=3, group_rank=0, stage_index=c * 5, submod=None) for c in (0, 1)
        ]
        file = tmp_path / f"{torchs}.csv"
        getattr(torch_schedules, torchs)(stages, 7)._dump_csv(str(file), format="compute_only")
        assert Schedule.from_csv(file.read_text(), ours) == build(ours, 3, 7, 2)
        code, out, _ = run(file, "--export", "torch")
        assert code == 0
        assert "complete, " in out
        assert torchs in out
        assert (tmp_path / "results" / "schedule" / f"{torchs}-p3-m7-v2" / "schedule.csv").is_file()


def test_the_broken_files_of_the_documentation_print_what_it_says(run, tmp_path):
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \| `(.+?)` \| `(.+)` \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for name, content, message in rows:
        (tmp_path / name).write_text(content.replace("/", "\n"))
        assert run(tmp_path / name) == (2, "", f"reproduce: {tmp_path / name}: {message}\n")


def test_an_order_of_one_s_own_may_have_plain_passes_and_fused_pairs(run, tmp_path):
    file, definition = tmp_path / "pairs.py", tmp_path / "definition.py"
    order = """
from ptdp_core.schedules.definition import Definition, fused, in_turn

def order(p, m, v):
    return [[*fused(row[:-1]), tuple(row[-1])] for row in in_turn(p, m, warmup=lambda rank: min(p - rank, m))]
"""
    file.write_text(order)
    definition.write_text(order + 'SCHEDULE = Definition("definition", "Pairs", 2026, "a test", order, fuses=True)\n')
    for own in (file, definition):
        code, out, _ = run(own, "-p", "2", "-m", "3")
        assert code == 0
        assert "&: a forward pass and the backward pass behind it run together" in out
        assert (tmp_path / "results" / "schedule" / f"{own.stem}-p2-m3-v1" / "schedule.csv").read_text() == (
            "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n"
        )


def test_a_function_in_a_file_is_simulated_trained_and_exported(run, tmp_path):
    """1F1B under another name: its simulated iteration and its gradients are 1F1B's."""
    text = "from ptdp_core.schedules.zoo import one_f_one_b\norder = one_f_one_b.order\n"
    (tmp_path / "mine.py").write_text(text)
    settings = ("--simulate", "layers=4", "hidden=1024", "heads=16", "t=1")
    code, out, _ = run(tmp_path / "mine.py", "-p", "2", "-m", "4", *settings, "--train", "--export", "torch", "--json")
    document = json.loads(out)
    assert code == 0
    assert [row["schedule"] for row in document["schedules"]].count("mine") == 1
    mine, others = document["schedules"][0], {row["schedule"]: row for row in document["schedules"][1:]}
    assert mine["schedule"] == "mine"
    assert mine["metrics"]["bubble_fraction"] == others["1f1b"]["metrics"]["bubble_fraction"]
    # Its messages are grouped as its table demands, not as the authors' code did.
    assert mine["metrics"]["iteration_time"]["value"] <= others["1f1b"]["metrics"]["iteration_time"]["value"]
    assert [(row["exchange"], row["largest"]) for row in document["gradients"]] == [("blocking", 0), ("overlapped", 0)]
    assert "schedule.csv" in document["files"]


def test_a_table_with_fused_pairs_is_read_drawn_trained_and_exported(run, tmp_path):
    table = build("dualpipev-overlap", 2, 4, 2)
    (tmp_path / "mine.csv").write_text(table.to_csv())
    code, out, _ = run(tmp_path / "mine.csv", "--train", "--export", "torch")
    assert code == 0
    assert "&: a forward pass and the backward pass behind it run together" in out
    assert out.count("gradients equal 1F1B's to the bit") == 2
    folder = tmp_path / "results" / "schedule" / "mine-p2-m4-v2"
    assert (folder / "schedule.csv").read_text() == table.to_csv()


@pytest.mark.slow
def test_a_file_named_like_a_schedule_is_compared_with_it(run, tmp_path):
    """Also a Definition of that name: here GPipe's order as '1f1b'."""
    definition = (
        "from dataclasses import replace\nfrom ptdp_core.schedules.zoo.gpipe import SCHEDULE as gpipe\n"
        "SCHEDULE = replace(gpipe, name='1f1b')\n"
    )
    (tmp_path / "other.py").write_text(definition)
    (tmp_path / "1f1b.csv").write_text(build("gpipe", 4, 8).to_csv())
    for name in ("other.py", "1f1b.csv"):
        _, out, _ = run(tmp_path / name, "--json")
        rows = {row["schedule"]: row["metrics"]["peak_stash"]["value"] for row in json.loads(out)["schedules"]}
        assert (rows["1f1b (own)"], rows["1f1b"]) == (8, 4)


def test_the_search_keeps_the_memory_and_says_how_far_from_the_bound_it_is(run):
    code, out, _ = run("--search", "--memory", "0.75", "-p", "4", "-m", "8")
    assert code == 0
    assert "bound: 25.5 t_f" in out
    for memory in (Fraction(1, 2), Fraction(1), Fraction(2)):
        schedule = greedy(4, 8, memory, EQUAL)
        check_complete(schedule)
        assert max(peak_stash(schedule)) <= memory * 4 * schedule.v
        assert makespan(schedule, EQUAL) >= lower_bound(4, 8, EQUAL)
    assert makespan(greedy(4, 8, Fraction(2), EQUAL), EQUAL) == lower_bound(4, 8, EQUAL)


def test_the_gallery_of_the_documentation_is_what_the_command_prints():
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    shown = table(family(4, 8))
    rows = [f"| {' | '.join(row)} |" for row in ([column.heading for column in shown.columns], *shown.cells)]
    assert [line for line in page.splitlines() if line.startswith("| ")][: len(rows)] == rows


def test_a_short_batch_of_a_steady_state_is_one_that_exists():
    """DualPipeV needs m >= 2p: no batch below that is tried in place of a long one."""
    assert all(exists("dualpipev", 12, m, 2) for m in short_batches("dualpipev", 12, 48, 2))


def test_dualpipe_m20(as_json):
    """deepseek-ai/DualPipe#8: DualPipe against (interleaved) 1F1B on 8 ranks with 20 microbatches."""
    found = as_json("schedule", "-p", "8", "-m", "20")
    bubbles = {each["schedule"]: each["metrics"]["bubble_fraction"]["value"] for each in found["schedules"]}
    assert bubbles["1f1b"] == 0.35
    assert "interleaved" not in bubbles
    absent, dualpipe = found["notes"]
    assert absent.startswith("no Interleaved 1F1B: m=20 microbatches with v=2 model chunks on p=8 devices; needs m a")
    # t_f = t_i = t_w = 1: (p/2-1)(F&B + B - 3W) = 3 (2 + 2 - 3) of 20 microbatches of 3, where F&B is B.
    assert f"bubble {3 / 60:.1%}; published: (p/2-1)(F&B + B - 3W)" in dualpipe


def test_gpipe_1f1b_71_steps(as_json):
    """zxypro1/algolocal#95: 1F1B needs as many steps as GPipe; its bubble is as long, whatever the memory."""
    schedules = {
        each["schedule"]: each["metrics"]
        for each in as_json("schedule", "-p", "8", "-m", "32", "--t-forward", "1", "--t-backward", "1")["schedules"]
    }
    for name in ("gpipe", "1f1b"):
        assert schedules[name]["makespan"]["value"] == 78
        assert schedules[name]["bubble_fraction"]["value"] == pytest.approx(0.219, abs=5e-4)

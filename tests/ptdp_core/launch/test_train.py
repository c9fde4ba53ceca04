"""The command `ptdp-train` as a user runs it: curves, resuming, launchers, faults, exit codes."""

import contextlib
import io
import json
import math
import os
import re
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels import selection
from ptdp_core.engine.checkpoint.folder import checkpoints_in, newest, problem
from ptdp_core.engine.data import open_tokens, prepare, write_tokens
from ptdp_core.engine.files import LOCK, lock
from ptdp_core.engine.pipeline import BatchResult
from ptdp_core.engine.settings_file import from_mapping
from ptdp_core.engine.trainer import TrainStep
from ptdp_core.launch import recipes
from ptdp_core.launch.command_line import configure, main, parser
from ptdp_core.launch.defaults import decided, set_up
from ptdp_core.launch.training_log import TrainingLog
from ptdp_core.schedules import build
from reproduce.annex.explain.profiled_step import profile_step
from reproduce.annex.weights import weights
from results.records import errors
from tests.processes import Program, needs_proc, parent, python, wait_for

MODULE = ["-m", "ptdp_core.launch"]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
SMALL = ["hidden=16", "heads=4", "seq=16", "layers=4", "b=2", "B=8"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


def arguments(*sets, ranks=1, recipe="tiny"):
    return ["--recipe", recipe, "--ranks", str(ranks), *(word for s in sets for word in ("--set", s))]


def losses(log):
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if row["event"] == "step"}


def train(log, cache, *sets, ranks=1):
    assert main(arguments(f"log={log}", f"cache={cache}", "log_every=1000", *sets, ranks=ranks)) == 0
    return losses(log)


def unigram_entropy(cache):
    counts = np.bincount(open_tokens(prepare("", cache)).ids)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def close(a, b):
    return a.keys() == b.keys() and all(math.isclose(a[k], b[k], rel_tol=2e-6) for k in a)


@pytest.mark.slow
def test_one_curve_for_every_layout_and_resumed_at_others(tmp_path, cache):
    """50 steps of the default recipe in fp32: serial, at (2,2,2), and resumed from step 25 at (4,1,2) and (1,1,1)."""
    serial = train(tmp_path / "1", cache)
    assert len(serial) == 50
    assert serial[50] < unigram_entropy(cache) - 0.3
    save = f"save={tmp_path / 'saved'}"
    parallel = train(tmp_path / "2", cache, "p=2", "t=2", "d=2", save, "save_every=25", ranks=8)
    assert close(parallel, serial)
    rest = {step: loss for step, loss in serial.items() if step > 25}
    load = f"load={tmp_path / 'saved' / 'step_00000025'}"
    assert close(train(tmp_path / "3", cache, "p=4", "d=2", load, ranks=8), rest)
    assert close(train(tmp_path / "4", cache, load), rest)


@pytest.mark.slow
@pytest.mark.usefixtures("own_registry")
def test_a_schedule_from_a_file_trains_as_one_process_does(tmp_path, cache):
    """A table of a V with split passes, which says p, v and, with b, B."""
    table = tmp_path / "mine.csv"
    table.write_text(build("zb-v", 2, 4, 2).to_csv())
    sets = [f"cache={cache}", *(item for item in SMALL if item != "B=8"), "steps=2"]
    log = tmp_path / "log"
    assert main([*arguments(*sets, f"log={log}", ranks=2), "--schedule", str(table)]) == 0
    assert close(losses(log), train(tmp_path / "1", cache, *SMALL, "steps=2"))


@pytest.mark.usefixtures("own_registry")
def test_a_schedule_brings_the_sizes_that_it_needs(tmp_path):
    module = tmp_path / "mine.py"
    module.write_text("from ptdp_core.schedules.zoo.hanayo import SCHEDULE\n")
    for schedule, sets, expected in (
        ("zb-v", ["p=2"], (2, 2, 64)),
        ("1f1b", ["p=2", "v=1"], (2, 1, 64)),
        (str(module), ["p=2", "B=32"], (2, 2, 32)),
    ):
        parallel = configure(parser().parse_args([*arguments(*sets), "--schedule", schedule])).parallel
        assert (parallel.p, parallel.v, parallel.B) == expected
        assert parallel.schedule == schedule


def leaves_a_trace(folder):
    """A schedule in Python, and the file that it adds a line to whenever it is executed."""
    module, trace = folder / "mine.py", folder / "trace"
    module.write_text(
        f"open({str(trace)!r}, 'a').write('executed\\n')\nfrom ptdp_core.schedules.zoo.gpipe import SCHEDULE\n"
    )
    return module, trace


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("options", [["--print-sbatch"], ["--ranks", "2"]])
def test_a_schedule_in_python_that_a_file_names_is_not_executed(options, tmp_path, capsys):
    module, trace = leaves_a_trace(tmp_path)
    (tmp_path / "run.toml").write_text(
        f"[model]\nlayers = 2\nhidden = 8\nheads = 2\n[parallel]\np = 2\nB = 2\nschedule = '{module}'\n"
    )
    expected = (
        f"ptdp-train: schedule={str(module)!r} is Python, which is executed only where the command line names it; "
        f"needs --schedule {module}, or a table; try reproduce schedule {module} --export torch, "
    )
    named = ["--recipe", "tiny", "--set", "p=2", "--set", f"schedule={module}"]
    for words in ([str(tmp_path / "run.toml")], named):
        assert main([*words, *options]) == 2
        error = capsys.readouterr().err
        assert error.startswith(expected)
        assert error.count("\n") == 1
    assert not trace.exists()
    assert main([str(tmp_path / "run.toml"), "--schedule", str(module), "--print-sbatch"]) == 0
    assert f"--schedule {module}" in capsys.readouterr().out  # as every rank's command line
    assert trace.read_text() == "executed\n"


@pytest.mark.usefixtures("own_registry")
def test_ranks_execute_the_schedule_that_the_command_line_names(tmp_path, cache):
    module, trace = leaves_a_trace(tmp_path)
    sets = [f"cache={cache}", *SMALL, "steps=1", "p=2", f"save={tmp_path / 'saved'}"]
    assert main([*arguments(*sets, ranks=2), "--schedule", str(module)]) == 0
    assert trace.read_text() == 3 * "executed\n"  # the launcher and its two ranks
    module.unlink()  # what only loads the weights does not ask for it
    assert weights.load(tmp_path / "saved", torch.device("cpu")).settings.parallel.p == 1


def test_log(tmp_path, cache):
    looks = ["validation=0.01", "eval_every=1", "eval_batches=2"]
    train(tmp_path / "log", cache, *SMALL, "steps=2", "log_every=1", *looks)
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [row["event"] for row in rows] == ["begin", "step", "evaluation", "step", "evaluation", "end"]
    begin, steps = rows[0], rows[1::2][:2]
    assert [(row["step"], row["sequences"]) for row in rows[2::2][:2]] == [(1, 16), (2, 16)]
    assert rows[5]["validation_loss"] == rows[4]["loss"] < rows[2]["loss"] < 6
    assert begin["settings"]["model"]["hidden"] == 16
    assert {row["run"] for row in steps} == {begin["run"]}
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert row["tokens_per_s"] == pytest.approx(8 * 16 / row["step_time_s"])
        assert row["eq3_flops_per_s"] > row["model_flops_per_s"] > 0
        assert row["peak_memory_bytes"] > 1 << 20
        assert row["gradient_norm"] > 0


def test_module_command_and_toml_file(tmp_path, cache):
    config = tmp_path / "run.toml"
    config.write_text(
        "[model]\nlayers=2\nhidden=16\nheads=4\nseq=16\nvocab=256\n[parallel]\np=2\nB=4\n"
        f'[run]\nsteps=2\ncache="{cache}"\n'
    )
    done = python(*MODULE, config, "--ranks", 2, timeout=60)
    header, summary = done.stdout.splitlines()[:5], done.stdout.splitlines()[-1]
    assert [line.split()[0] for line in header] == ["run", "model", "parallel", "engine", "data"]
    assert "p=2 t=1 d=1" in header[2]
    assert "fp32 on 2 x CPU, reference kernels, attention operators" in header[3]
    assert "step     2  loss" in done.stdout
    assert re.match(r"done      2 steps in .* s \(median .* ms, .* tokens/s\), loss .* to .*; nothing saved", summary)


def test_a_profiled_run_writes_the_trace_of_its_last_step_for_each_rank(tmp_path, cache):
    train(tmp_path / "log", cache, "p=2", "b=2", "B=8", "steps=3", f"profile={tmp_path / 'profile'}", ranks=2)
    paths = sorted((tmp_path / "profile").iterdir())
    assert [path.name for path in paths] == ["rank0.json.gz", "rank1.json.gz"]
    profiled = profile_step(paths)
    assert (profiled.step, profiled.timeline.p, profiled.timeline.m) == (3, 2, 4)
    logged = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert max(entry["step"] for entry in logged if "loss" in entry) == profiled.step


def test_tensorboard_gets_what_the_log_gets(tmp_path, monkeypatch):
    """With a stand-in for its writer: the package need not be installed."""
    rows = []
    writer = SimpleNamespace(add_scalar=lambda *row: rows.append(row), close=lambda: rows.append(("closed", 0.0, 0)))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=lambda folder: writer))
    sections = recipes.recipe("tiny")
    sections["run"]["tensorboard"] = str(tmp_path)
    with TrainingLog(from_mapping(sections), torch.device("cpu"), io.StringIO()) as report:
        report.step(TrainStep(1, 3.5, 0.5, 1e-3, False, 1.0, BatchResult()), 2.0)
        report.evaluation(1, 3.25, 8)
    names = ["loss", "gradient_norm", "lr", "tokens_per_s", "validation_loss", "closed"]
    assert [name for name, _, _ in rows] == names
    assert rows[0] == ("loss", 3.5, 1)
    assert rows[4] == ("validation_loss", 3.25, 1)


def test_a_gpu_s_defaults_are_the_fastest_and_a_cpu_s_the_paper_s(monkeypatch):
    """No GPU: which kernels could run on one is pretended."""
    arguments = parser().parse_args(["--recipe", "tiny"])
    monkeypatch.setattr(selection, "why_unavailable", lambda name, device: None)
    cases = (
        ("cuda", [], ("sdpa", "triton")),
        ("cpu", [], ("operators", "reference")),
        ("cuda", ["fused=false"], ("operators", "reference")),
        ("cuda", ["attention=operators", "kernels=compiled"], ("operators", "compiled")),
    )
    for device, sets, expected in cases:
        arguments.set = sets
        settings = decided(configure(arguments), torch.device(device))
        assert (settings.parallel.attention, settings.engine.kernels) == expected
    precision = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precision.append)
    for device in ("cpu", "cuda"):
        set_up(torch.device(device))
    assert precision == ["high"]


@pytest.mark.slow
def test_torchrun(tmp_path, cache):
    sets = [f"cache={cache}", *SMALL, "steps=2", "p=2", f"log={tmp_path / 'log'}"]
    words = [word for s in sets for word in ("--set", s)]
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    python(*torchrun, *MODULE, "--recipe", "tiny", *words, timeout=90)
    serial = train(tmp_path / "serial", cache, *SMALL, "steps=2")
    assert close(losses(tmp_path / "log"), serial)


def test_slurm_script(capsys):
    assert main(["--recipe", "gpt-175b", "--print-sbatch", "--set", "lr=1e-4"]) == 0
    out = capsys.readouterr().out
    for asked in ("nodes=12", "ntasks=96", "ntasks-per-node=8", "gpus-per-node=8", "exclusive"):
        assert f"#SBATCH --{asked}" in out.splitlines()
    # A GPU's rank has its share of the cores, one on a CPU a core.
    assert "export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / 8))" in out.splitlines()
    assert "cpus-per-task" not in out
    assert "exec python -m ptdp.train --recipe gpt-175b --set lr=1e-4" in out
    assert not re.search(r"(?<![\w!])/\w", out)  # no absolute path, but for the first line's
    assert "--resume" not in out  # there is nothing saved to go on from
    assert main(["--recipe", "gpt-175b", "--print-sbatch", "--set", "save=x"]) == 0
    out = capsys.readouterr().out
    assert "--set save=x --resume auto" in out
    for asked in ("signal=TERM@300", "requeue", "time=24:00:00"):
        assert f"#SBATCH --{asked}" in out.splitlines()


def test_a_slurm_script_asks_for_what_it_is_told_to(capsys):
    options = ["--time", "1-12:00:00", "--partition=gpu", "--account", "team", "--nodes", "24"]
    assert main(["--recipe", "gpt-175b", "--print-sbatch", *options]) == 0
    out = capsys.readouterr().out.splitlines()
    sizes = ("nodes=24", "ntasks-per-node=4", "gpus-per-node=4")
    for asked in (*sizes, "time=1-12:00:00", "partition=gpu", "account=team"):
        assert f"#SBATCH --{asked}" in out
    assert "exec python -m ptdp.train --recipe gpt-175b" in out  # the job's command asks Slurm for nothing


def test_a_corrupt_token_file(tmp_path, capsys):
    path = tmp_path / "x.tokens"
    write_tokens(path, np.arange(5000) % 256, 256)
    os.truncate(path, 3000)
    assert main(arguments(f"data={path}")) == 2
    assert "has 3000 bytes, where 5024 are expected; needs an intact token file" in capsys.readouterr().err


def test_a_token_outside_the_vocabulary(tmp_path, capsys):
    path = tmp_path / "x.tokens"
    ids = np.arange(5000) % 100
    ids[2500:] = 200
    write_tokens(path, ids, 100)
    assert main(arguments(f"data={path}", "vocab=100")) == 2
    assert "holds token 200 at position 2500, outside vocab=100; needs tokens 0 to" in capsys.readouterr().err


def test_places_are_tried_before_training(tmp_path, cache, capsys):
    """Nothing is made of a path that may be a misspelling, nor where another place is one."""
    (tmp_path / "file").touch()
    misspelt, none = tmp_path / "typo" / "x", f"there is no folder {tmp_path / 'typo'}; needs one that is there"
    below_a_file = "cannot be written: Not a directory; needs a writable folder; try another"
    for field, where, code, said in [
        ("cache", tmp_path / "file" / "x", 3, below_a_file),
        ("save", tmp_path / "file" / "x", 2, f"there is no folder {tmp_path / 'file'}"),
        *((field, misspelt, 2, none) for field in ("log", "profile", "save")),
    ]:
        assert main(arguments(f"cache={cache}", f"save={tmp_path / 'saved'}", f"{field}={where}")) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"ptdp-train: {field}='{where}")
        assert said in line
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_wrong_in_a_rank_is_one_line_with_its_exit_code(tmp_path, cache, capsys):
    """A log without space, a folder and a log in use, and training that diverges: found by a rank."""
    sets = [*SMALL, f"cache={cache}", "steps=3", "p=2"]
    save, log = tmp_path / "saved", tmp_path / "log"
    save.mkdir()
    diverges = [*sets, f"save={save}", "save_every=1", "lr=1e30", "clip=0.0", "warmup_steps=0"]
    with lock("save", save / LOCK), lock("log", log):
        full = "no space left on log='/dev/full': No space left on device; needs free space"
        in_use = "is in use by another run; needs a place of its own"
        for field, place, code, message in (
            ("log", "/dev/full", 3, full),
            ("save", save, 2, f"save='{save}' {in_use}"),
            ("log", log, 2, f"log='{log}' {in_use}"),
        ):
            assert main(arguments(*sets, f"{field}={place}", ranks=2)) == code
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"ptdp-train: {message}")
    assert main(arguments(*diverges, ranks=2)) == errors.DIVERGED
    (line,) = capsys.readouterr().err.splitlines()
    assert "at step 2; needs finite numbers; try an lr below 1e+30, or clip=1.0 (on_nan='skip'" in line
    assert [path.name for path in checkpoints_in(save)] == ["step_00000001"]


def test_its_exit_codes_mean_what_they_mean_for_every_command():
    listed = re.findall(r"^ +(\d+)  (.*)$", parser().format_help().partition("exit codes:")[2], re.MULTILINE)
    assert {"0", "10", "143"} <= dict(listed).keys()
    assert {int(code): meaning for code, meaning in listed}.items() <= errors.MEANINGS.items()
    assert len(set(errors.MEANINGS.values())) == len(errors.MEANINGS)


def test_the_same_command_starts_and_goes_on(tmp_path, cache, capsys):
    """The last step is saved though save_every does not divide it; the newest `keep` stay; none is overwritten."""
    sets = [*SMALL, f"save={tmp_path / 'saved'}", "save_every=2", "keep=2"]
    whole = train(tmp_path / "whole", cache, *SMALL, "steps=9")
    command = [*arguments(*sets, "steps=7", f"cache={cache}", f"log={tmp_path / 'log'}"), "--resume", "auto"]
    assert main(command) == 0
    assert [path.name for path in checkpoints_in(tmp_path / "saved")] == ["step_00000006", "step_00000007"]
    assert main([*command, "--set", "steps=9"]) == 0
    assert losses(tmp_path / "log") == whole
    assert [path.name for path in checkpoints_in(tmp_path / "saved")] == ["step_00000008", "step_00000009"]
    assert len({json.loads(line)["run"] for line in (tmp_path / "log").read_text().splitlines()}) == 2
    capsys.readouterr()
    assert main(arguments(*sets, f"cache={cache}")) == 2
    assert "holds step_00000009, and this run starts at step 0; needs a folder" in capsys.readouterr().err
    for path in checkpoints_in(tmp_path / "saved"):
        (path / "manifest.json").unlink()
    assert main(command) == 2
    assert "no whole checkpoint; needs step_* inside; try the folder of a run's save; step_00000009 has a manifest" in (
        capsys.readouterr().err
    )


def start(tmp_path, cache, *sets, launcher=()):
    """A run of four ranks that saves after every step, and has saved twice."""
    more = [f"cache={cache}", *SMALL, "p=2", "t=2", "steps=100000", "log_every=1000000"]
    words = arguments(*more, f"save={tmp_path / 'saved'}", "save_every=1", *sets, ranks=4)
    if launcher:
        words = [word for word in words if word not in ("--ranks", "4")]
    run = Program(tmp_path, *launcher, *MODULE, *words)
    wait_for(lambda: run.process.poll() is not None or (tmp_path / "saved" / "step_00000002").exists())
    return run


def ranks_of(run):
    """The processes of a run's ranks in order: those started by its fork server."""
    server = {pid for pid in run.processes() if parent(pid) == run.process.pid}
    return sorted(pid for pid in run.processes() if parent(pid) in server)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("who", [0, 3])
def test_kill_9_of_a_rank_ends_the_run_and_leaves_a_checkpoint(who, tmp_path, cache):
    with start(tmp_path, cache) as run:
        os.kill(ranks_of(run)[who], signal.SIGKILL)
        assert run.wait() == 1
        assert f"ptdp-train: rank {who} was killed by SIGKILL before it was done" in run.stderr
        run.wait_until_gone()
    last = newest(tmp_path / "saved")
    assert problem(last) is None
    step = int(last.name[-8:])
    resumed = train(tmp_path / "log", cache, *SMALL, f"load={tmp_path / 'saved'}", f"steps={step + 1}")
    assert list(resumed) == [step + 1]


@pytest.mark.slow
@needs_proc
def test_interrupt(tmp_path, cache):
    with start(tmp_path, cache) as run:
        run.signal_group(signal.SIGINT)
        assert run.wait() == 130
        assert run.stderr == "ptdp-train: interrupted; to go on: the same command with --resume auto\n"
        run.wait_until_gone()
        assert not run.temporary_files()


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("to", ["launcher", "group", "one rank under torchrun", "SIGHUP to torchrun"])
def test_sigterm_saves_the_step_at_hand_on_all_ranks_and_ends(to, tmp_path, cache):
    torchrun = TORCHRUN if "torchrun" in to else ()
    log = tmp_path / "log"
    with start(tmp_path, cache, f"log={log}", launcher=torchrun) as run:
        if to == "SIGHUP to torchrun":
            run.process.send_signal(signal.SIGHUP)
        elif torchrun:
            ranks = sorted(pid for pid in run.processes() if parent(pid) == run.process.pid)
            os.kill(ranks[2], signal.SIGTERM)
        elif to == "group":
            run.signal_group(signal.SIGTERM)
        else:
            run.process.send_signal(signal.SIGTERM)
        assert run.wait() == (1 if torchrun else 143)  # torchrun has its own code
        run.wait_until_gone()
        assert torchrun or not run.temporary_files()
    last = max(losses(log))
    path = tmp_path / "saved" / f"step_{last:08d}"
    assert newest(tmp_path / "saved") == path
    line = f"terminated after step {last}, saved {path}; to go on: the same command with --resume auto"
    said = [text for text in run.stderr.splitlines() if text.startswith("ptdp-train:")]
    assert said == [f"ptdp-train: {'rank 0: ' if torchrun else ''}{line}"]


@pytest.mark.slow
@needs_proc
def test_a_terminal_that_goes_away_ends_a_run_as_sigterm_does(tmp_path, cache):
    """Also though its ranks write to that terminal after every step, which then fails."""
    ours, its = os.openpty()
    os.set_blocking(ours, False)

    def saved_twice():
        with contextlib.suppress(BlockingIOError):
            os.read(ours, 1 << 16)  # what nobody reads would stop the run
        return (tmp_path / "saved" / "step_00000002").exists()

    log = tmp_path / "log"
    sets = [f"cache={cache}", *SMALL, "p=2", "steps=100000", "log_every=1", f"log={log}", f"save={tmp_path / 'saved'}"]
    with Program(tmp_path, *MODULE, *arguments(*sets, "save_every=1", ranks=2), terminal=its) as run:
        os.close(its)
        wait_for(lambda: run.process.poll() is not None or saved_twice())
        os.close(ours)
        assert run.wait() == 129
        run.wait_until_gone()
        assert not run.temporary_files()
    assert newest(tmp_path / "saved") == tmp_path / "saved" / f"step_{max(losses(log)):08d}"
    assert not list((tmp_path / "saved").glob(".*.partial"))


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["ptdp-train", "torchrun"])
def test_nothing_is_left_when_the_launcher_is_killed(launcher, tmp_path, cache):
    with start(tmp_path, cache, launcher=launcher) as run:
        run.process.kill()
        run.wait_until_gone()
        assert launcher or not run.temporary_files()


@pytest.mark.slow
@needs_proc
def test_a_frozen_rank_is_found_by_the_timeout(tmp_path, cache):
    """A rank that is stopped cannot even say where it is."""
    with start(tmp_path, cache, "timeout=15") as run:
        os.kill(ranks_of(run)[1], signal.SIGSTOP)
        assert run.wait() == 1
        assert "ptdp-train: rank 1 hangs" in run.stderr
        run.wait_until_gone()


@pytest.mark.slow
def test_zero3_from_the_command(tmp_path, cache):
    sets = [*SMALL, "steps=3", "recompute=none"]
    zero3 = train(tmp_path / "z", cache, *sets, "data_parallel=zero3", "d=2", f"save={tmp_path / 'saved'}", ranks=2)
    assert close(zero3, train(tmp_path / "s", cache, *sets))
    assert newest(tmp_path / "saved").name == "step_00000003"

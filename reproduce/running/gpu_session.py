"""Everything that half an hour on one GPU should verify, as steps in their order: each a command with a time limit.

A step that has passed is not run again. Whether it passed, how long it took and what it printed are kept in a folder:
`session.json`, and a log file for each step. The same steps run on a CPU at toy sizes, which shows that they work.
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results import ROOT
from results.records.storage import atomic_write_bytes

LIMIT_S = 600.0  # of a step
STATUSES = PASSED, SKIPPED, FAILED, TOO_LONG = "passed", "skipped", "failed", "too long"


ON_GPU = {
    "device": "cuda", "quick": "", "tests": "tests", "check": "--check", "scale": "gpu",
    "artifacts": "fig_microbatch_single_gpu fig_recomputation table_fused_operators table_checkpoint",
    "recipe": "small", "steps": "60", "dtype": "bf16",
}  # fmt: skip
TOY = {
    "device": "cpu", "quick": "--quick", "tests": "tests/benchmarks/harness/test_timing.py", "check": "",
    "scale": "cpu", "artifacts": "table_fused_operators", "recipe": "tiny", "steps": "2", "dtype": "fp32",
}  # fmt: skip
REPRODUCE = "{python} -m reproduce"
BENCH = f"{REPRODUCE} bench run --results {{results}} --device {{device}} {{quick}}"
TRAIN = (
    "{python} -m torch.distributed.run --standalone --nproc-per-node 1 --log-dir {results}/torchrun "
    "-m ptdp_core.launch --recipe {recipe} --resume auto --set device={device} --set steps={steps} "
    "--set validation=0.01 --set dtype={dtype}"
)
STEPS = (
    ("tests", "the tests that need a GPU", "{python} -m pytest -q -m gpu {tests}"),
    (
        "sanitizer",
        "the Triton kernels under compute-sanitizer",
        "compute-sanitizer --error-exitcode 9 {python} -m pytest -q -n 0 tests/kernels/test_bias_gelu.py",
    ),
    ("peaks", "matrix products and memory", f"{BENCH} gemm memory"),
    ("operators", "fused operators against eager PyTorch", f"{BENCH} fused_kernels"),
    ("steps", "training steps, MFU and where the time goes", f"{BENCH} gpu_step"),
    ("parts", "a layer, AdamW and a checkpoint", f"{BENCH} layer optimizer_step checkpoint"),
    (
        "calibrate",
        "this GPU as a cluster to simulate, and how well it predicts",
        f"{REPRODUCE} calibrate --force --out {{results}}/gpu.toml --results {{results}} --device {{device}} {{check}}",
    ),
    (
        "artifacts",
        "the paper's experiments that one GPU can do",
        f"{REPRODUCE} {{artifacts}} --fidelity measured --scale {{scale}} --results {{results}}",
    ),
    (
        "train",
        "training, saving and going on under torchrun with one rank",
        f"{TRAIN} --set save={{results}}/checkpoints",
    ),
    ("zero3", "the FSDP2 baseline", f"{TRAIN} --set save={{results}}/checkpoints-zero3 --set data_parallel=zero3"),
)


@dataclass(frozen=True)
class SessionStep:
    """A command, and what it shows."""

    name: str
    title: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class StepOutcome:
    """How a step ended, after how long; its last line of output."""

    status: str
    seconds: float
    said: str

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return self.status in (PASSED, SKIPPED)


def steps(results: Path, toy: bool) -> list[SessionStep]:
    """The steps of a session that writes its results there; `toy`: on a CPU, at toy sizes."""
    words = {"python": shlex.quote(sys.executable), "results": shlex.quote(str(results)), **(TOY if toy else ON_GPU)}
    return [SessionStep(name, title, tuple(shlex.split(command.format(**words)))) for name, title, command in STEPS]


def run(
    steps: Sequence[SessionStep], folder: Path, tell: Callable[[str], None], limit_s: float = LIMIT_S
) -> dict[str, StepOutcome]:
    """Run the steps that have not passed yet, in order, one failing or not; the outcomes of all, kept in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "session.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    outcomes = {name: StepOutcome(**row) for name, row in before.items()}
    for number, step in enumerate(steps, 1):
        head = f"[{number}/{len(steps)}] {step.name}: {step.title}"
        if step.name in outcomes and outcomes[step.name].status == PASSED:
            tell(f"{head}: passed before")
            continue
        tell(f"{head} ...")
        outcome = outcomes[step.name] = _run(step, folder / f"{step.name}.log", limit_s)
        tell(f"    {outcome.status} after {outcome.seconds:.0f} s: {outcome.said}")
        rows = {name: vars(row) for name, row in outcomes.items()}
        atomic_write_bytes(path, json.dumps(rows, indent=1).encode())
    return {step.name: outcomes[step.name] for step in steps}


def _run(step: SessionStep, log: Path, limit_s: float) -> StepOutcome:
    if shutil.which(step.command[0]) is None:
        return StepOutcome(SKIPPED, 0.0, f"{step.command[0]} is not on the path")
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        try:
            code = subprocess.run(
                step.command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, timeout=limit_s, check=False
            ).returncode
            status = PASSED if code == 0 else FAILED
        except subprocess.TimeoutExpired:
            status = TOO_LONG
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return StepOutcome(status, time.monotonic() - start, lines[-1].strip() if lines else "it printed nothing")

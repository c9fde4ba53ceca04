"""A long training run stays as it is: memory, open files and threads of every rank, quarter against quarter."""

from itertools import pairwise
from statistics import median

import pytest

from ptdp_core.launch.command_line import configure, parser
from ptdp_core.launch.local import launch
from ptdp_core.launch.preflight import preflight
from tests.processes import needs_proc
from tests.ptdp_core.engine import jobs

STEPS = 5000
SETS = [
    *("p=2", "layers=4", "hidden=32", "heads=4", "seq=64", "b=4", "B=8", f"steps={STEPS}", "log_every=1000000"),
    *("save_every=100", "keep=2", "async_save=true", "validation=0.01", "eval_every=250", "eval_batches=2"),
]
MAY_GROW = 2 << 20  # bytes from the second quarter to the last, by medians


@pytest.mark.slow
@needs_proc
def test_nothing_grows_in_5000_steps(tmp_path, record_property):
    """With checkpoints in the background, evaluations and a log. How long a step takes is recorded, not judged."""
    sets = [*SETS, f"save={tmp_path / 'saved'}", f"log={tmp_path / 'log'}", f"cache={tmp_path}"]
    words = ["--recipe", "tiny", *(word for text in sets for word in ("--set", text))]
    settings = preflight(configure(parser().parse_args(words)))
    for rank, rows in enumerate(launch(jobs.watched_run, 2, (settings,))):
        quarters = [rows[i * len(rows) // 4 : (i + 1) * len(rows) // 4] for i in range(4)]
        assert len(quarters[0]) > 100
        resident, files, threads = ([median(row[k] for row in quarter) for quarter in quarters] for k in range(3))
        times = [round(median(b[3] - a[3] for a, b in pairwise(quarter)) * 1e3, 2) for quarter in quarters]
        record_property(f"rank {rank}: MiB by quarter", [round(size / 2**20, 1) for size in resident])
        record_property(f"rank {rank}: ms per {jobs.WATCH_EVERY} steps by quarter", times)
        assert resident[3] - resident[1] < MAY_GROW
        assert files[3] == files[1]
        assert threads[3] == threads[1]

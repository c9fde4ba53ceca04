"""The program of one rank that torchrun or srun starts: `python -m benchmarks.harness.worker FOLDER` (see `launchers`).

It initialises the process group and runs the function of the job in FOLDER. Rank 0 writes what every rank returned; a
rank that fails writes its error to a file of its own. A rank ends with the process that started it.
"""

import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.harness.job import FAILED_EXIT, Job, read_job, write_error, write_results

PARENT_EVERY_S = 0.5


def run(job: Job, folder: Path) -> None:
    """Run the job's function on this rank; rank 0 writes the results."""
    import torch
    import torch.distributed as dist

    from ptdp_core.engine.groups import initialise, local_device

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if ranks == 1:
        write_results(folder, [job.function(lambda: None, *job.args)])
        return
    initialise(local_device(job.device), job.timeout_s)
    result = job.function(lambda: None, *job.args)
    results: list[Any] | None = [None] * ranks if rank == 0 else None
    dist.gather_object(result, results)
    if results is not None:
        write_results(folder, results)
    dist.barrier()  # no rank ends while another one still receives from it


def follow_parent(parent: int, folder: Path) -> None:
    """Wait until the parent process has ended, or the job's folder is gone; then end this process.

    A rank must not go on alone. The folder, which the launcher removes, tells of a parent that had ended before this
    process knew it.
    """
    while os.getppid() == parent and _is_there(folder):
        time.sleep(PARENT_EVERY_S)
    os._exit(FAILED_EXIT)


def _is_there(folder: Path) -> bool:
    """Whether a folder is there; a shared file system that gives no answer does not say that it is gone."""
    try:
        return folder.is_dir()
    except OSError:
        return True


def main() -> None:
    """Run the rank. It ends by `os._exit`, as gloo's threads must not outlive the objects that they use."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        import ptdp_core.launch.end_with_parent  # noqa: F401  torchrun's main thread starts its ranks; srun's need not
    folder = Path(sys.argv[1])
    threading.Thread(target=follow_parent, args=(os.getppid(), folder), daemon=True).start()
    code = 0
    try:
        run(read_job(folder), folder)
    except BaseException as error:
        code = FAILED_EXIT
        write_error(folder, int(os.environ["RANK"]), error, traceback.format_exc())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

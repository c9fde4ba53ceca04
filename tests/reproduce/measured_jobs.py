"""What the tests of measured runs do in ranks: no test framework here."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any


def name_yourself(beat: Callable[[], None], word: str) -> tuple[str, int, int]:
    """The word, and which rank of how many this is."""
    return word, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def misbehave(beat: Callable[[], None], how: str, who: int) -> Any:
    """Rank `who` fails in some way; the others wait for it."""
    import torch
    import torch.distributed as dist

    if int(os.environ["RANK"]) == who:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise ArithmeticError("rank with a reason")
        time.sleep(600)
    dist.all_reduce(torch.zeros(1))

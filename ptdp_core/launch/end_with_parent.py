"""Importing this module lets only the parent end this process. It is meant to be imported first, before torch.

Signals to the parent's process group, such as a terminal's, no longer reach this process. On Linux the kernel ends it
with the thread that started it; by itself it would notice the end of its parent only after seconds of imports. If the
parent's process id is given as PTDP_PARENT, this process also ends if the parent has ended before.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.environ.pop("PTDP_PARENT", str(os.getppid())) != str(os.getppid()):
    os._exit(1)

"""Imported first by the fork server: on Linux the kernel then ends it with the thread that started it.

Without this it would look for the end of its parent only after seconds of imports.
"""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

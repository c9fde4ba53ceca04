"""Errors of a training run that a user can correct: one line each, `<what is wrong>; needs <rule>; try <fix>`.

An invalid configuration raises `ConfigurationError`, unusable data `ValueError`; the classes here are for the rest.
"""

import errno

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class DivergedError(FloatingPointError):
    """Training diverged: loss, gradients or parameters are not finite, and a smaller loss scale would not help."""


class EngineUnavailableError(RuntimeError):
    """This machine lacks something that the run needs: a writable folder, disk space, a free port, a package."""


def not_writable(setting: str, path: object, error: OSError) -> EngineUnavailableError:
    """The error for a file or folder that the operating system refuses to write; `setting` asked for it."""
    reason = error.strerror or str(error)
    if error.errno in NO_SPACE:
        return EngineUnavailableError(
            f"no space left on {setting}={str(path)!r}: {reason}; needs free space there; try another {setting}"
        )
    if error.errno == errno.EFBIG:  # what `ulimit -f` allows, or the largest file that the file system can hold
        return EngineUnavailableError(
            f"file-size limit reached on {setting}={str(path)!r}: {reason}; needs larger files there; "
            f"try ulimit -f unlimited, or another {setting}"
        )
    return EngineUnavailableError(
        f"{setting}={str(path)!r} cannot be written: {reason}; needs a writable folder; try another {setting}"
    )

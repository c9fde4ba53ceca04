"""Errors of a training run that a user can do something about: one line each, `<what is wrong>; needs ...; try ...`.

A configuration or data that cannot work raise `ValueError`.
"""

import errno

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DivergedError(FloatingPointError):
    """The loss, the gradients or the parameters are not finite, and a smaller loss scale would not help."""


class UnavailableError(RuntimeError):
    """This machine cannot do it: a place cannot be written or is full, a port is in use."""


def not_writable(setting: str, path: object, error: OSError) -> UnavailableError:
    """What to say of a file or folder, asked for by this setting, that the operating system refuses to write."""
    reason = error.strerror or str(error)
    if error.errno in NO_SPACE:
        return UnavailableError(
            f"no space left on {setting}={str(path)!r}: {reason}; needs free space there; try another {setting}"
        )
    return UnavailableError(
        f"{setting}={str(path)!r} cannot be written: {reason}; needs a writable folder; try another {setting}"
    )

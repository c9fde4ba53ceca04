"""Which packages are installed, and where: beside `ptdp` in a checkout that is to be edited, else inside it."""

import gzip
import os
import sys
import tarfile
import time

from setuptools import find_namespace_packages, setup
from setuptools.command.sdist import sdist

# An installed copy finds schemas and reference records where a checkout has them; its own results go elsewhere.
INCLUDED = ["kernels*", "ptdp_core*", "benchmarks*", "reproduce*", "results", "results.records", "results.schema"]
NAMES = find_namespace_packages(include=[*INCLUDED, "results.reference*"])
PLACE = "" if "editable_wheel" in sys.argv else "ptdp._packages."


class Sdist(sdist):
    """A source distribution with equal bytes from equal files: no user, and SOURCE_DATE_EPOCH for all times."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **named):
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
            mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            return info.replace(mtime=epoch, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)

        with (
            open(name := f"{base_name}.tar.gz", "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=plain)
        return name


setup(
    cmdclass={"sdist": Sdist},
    packages=["ptdp", *(PLACE + name for name in NAMES)],
    package_dir={PLACE[:-1]: "."} if PLACE else {},
)

"""Which packages are installed, and where: beside `ptdp` in a checkout that is to be edited, else inside it."""

import sys

from setuptools import find_namespace_packages, setup

# An installed copy finds schemas and reference records where a checkout has them; its own results go elsewhere.
INCLUDED = ["kernels*", "ptdp_core*", "benchmarks*", "reproduce*", "results", "results.records", "results.schema"]
NAMES = find_namespace_packages(include=[*INCLUDED, "results.reference*"])
PLACE = "" if "editable_wheel" in sys.argv else "ptdp._packages."

setup(packages=["ptdp", *(PLACE + name for name in NAMES)], package_dir={PLACE[:-1]: "."} if PLACE else {})

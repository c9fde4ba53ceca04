"""The packages of others that commands use, and the line that says how to get one that is missing."""

from results import ROOT

# By the names that they are imported and installed by. The first ones come with this project, the others as its extras.
EXTRAS = {"torch": "engine", "scipy": "fit", "safetensors": "weights"}
PACKAGES = (
    *("numpy", "pandas", "seaborn", "matplotlib"),
    *("jinja2", "tabulate", "jsonschema", "fastjsonschema", "rich"),
    *EXTRAS,
)


def installation(name: str) -> str:
    """The command that installs one of `PACKAGES`, in a version that this project admits."""
    checkout = (ROOT / "pyproject.toml").is_file()
    project = "." if checkout else "ptdp"
    wanted = f"'{project}[{EXTRAS[name]}]'" if name in EXTRAS else project
    return f"pip install -e {wanted} in the project's folder" if checkout else f"pip install {wanted}"


def missing(name: str) -> str:
    """What to do about one of `PACKAGES` that is missing, in a line."""
    return f"the package {name} is not installed; needs it here; try {installation(name)}"


def not_installed(error: ImportError) -> str | None:
    """The line of the package whose import failed; None for what is none of `PACKAGES`: a bug of ours."""
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # pandas wraps that of numpy
    name = (cause.name or "").partition(".")[0]
    return missing(name) if name in PACKAGES else None

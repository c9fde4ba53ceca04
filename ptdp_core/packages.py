"""The packages of others that commands use, and the line that says how to get one that is missing."""

# By the names that they are imported and installed by. The first ones come with this project, the others as its extras.
PACKAGES = (
    *("torch", "numpy", "scipy", "pandas", "seaborn", "matplotlib"),
    *("jinja2", "tabulate", "jsonschema", "fastjsonschema", "rich", "shtab"),
    *("tokenizers", "safetensors", "ruptures"),
)


def not_installed(error: ModuleNotFoundError) -> str | None:
    """What to do about a package that is missing, in a line; None for what is none of `PACKAGES`: a bug of ours."""
    name = (error.name or "").partition(".")[0]
    return f"the package {name} is not installed; needs it here; try pip install {name}" if name in PACKAGES else None

"""A number with its unit, as people read it."""

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
# Units that take no prefix, and what is written after the number.
PLAIN = {"1": "", "count": "", "d": " d", "FLOP/B": " FLOP/B", "degC": " degC"}


def with_unit(value: float, unit: str, digits: int = 4, zeros: bool = False) -> str:
    """A value of a base unit with so many significant digits and a prefix: '14 GB/s', '15 us', '0.78'.

    With `zeros` trailing zeros stay, as columns of a table need it: '1.50 ms'. Whole counts have all their digits.
    """
    if unit == "count" and value == int(value):
        return str(int(value))
    if unit in PLAIN:
        return f"{value:.{digits}g}{PLAIN[unit]}"
    size = abs(float(f"{value:.{digits}g}"))  # as it is shown: 999.96 us are 1.00 ms
    factor, prefix = next(((f, p) for f, p in PREFIXES if size >= f), (1.0, ""))
    number = f"{value / factor:{'#' if zeros else ''}.{digits}g}".rstrip(".")
    return f"{number} {prefix}{unit.removeprefix('1')}"

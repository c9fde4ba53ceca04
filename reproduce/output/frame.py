"""Records as one tidy pandas DataFrame: the rows of `reproduce.output.columns`, from which exports are made."""

import pandas

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.quantities import Quantity
from reproduce.output.columns import FIXED, NUMBERS, OF_METRIC, OF_POINT, OF_RECORD, rows
from results.records import Record


def frame(record: Record) -> pandas.DataFrame:
    """The tidy frame of a record. A point without any metric has one row, which says why."""
    columns, found = rows(record)
    return typed(pandas.DataFrame(found, columns=columns))


def in_shown_units(table: pandas.DataFrame, artifact: Artifact | None = None) -> pandas.DataFrame:
    """The frame with the numbers of each metric in the unit that tables show it in: 'GB', 'teraFLOP/s', '%'.

    That is the artifact's unit, else that of `METRICS`; a metric that neither knows stays in its base unit.
    """
    known: dict[str, Quantity] = {**METRICS}
    if artifact is not None:
        known |= {quantity.name: quantity for quantity in artifact.quantities}
    quantities = [known.get(str(name).removeprefix(PREFIX)) for name in table.metric]
    factors = [each.factor if each else 1.0 for each in quantities]
    units = [each.shown or "1" if each else unit for each, unit in zip(quantities, table.unit, strict=True)]
    return table.assign(unit=units, **{name: table[name] / factors for name in NUMBERS})


def concatenated(frames: list[pandas.DataFrame]) -> pandas.DataFrame:
    """Several tidy frames as one, the parameters of all of them between the fixed columns."""
    rows = pandas.concat([each.astype(object) for each in frames], ignore_index=True)
    parameters = sorted(set(rows.columns) - set(FIXED))
    return typed(rows[[*OF_RECORD, *OF_POINT, *parameters, *OF_METRIC]])


def typed(table: pandas.DataFrame) -> pandas.DataFrame:
    """The frame with floating-point numbers, and parameters of the narrowest type that also has missing values."""
    texts = [name for name in table.columns if name not in NUMBERS]
    table = table.astype(dict.fromkeys(NUMBERS, float))
    return table.assign(**{name: table[name].convert_dtypes() for name in texts})

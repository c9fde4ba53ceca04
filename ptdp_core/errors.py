"""The error of a configuration that cannot be."""


class ConfigurationError(ValueError):
    """What was asked for cannot be configured: a value that is not allowed, or sizes that do not go together.

    Only this makes a point of an experiment 'invalid'. Any other `ValueError` there is a bug of ours.
    """

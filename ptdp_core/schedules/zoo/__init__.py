"""The schedules there are: a module each, whose `SCHEDULE` is the `Definition`. `registry.py` finds them."""

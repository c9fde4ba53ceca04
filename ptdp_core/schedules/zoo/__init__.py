"""The schedules: a module for each, whose `SCHEDULE` is its `Definition`. `registry.py` finds them."""

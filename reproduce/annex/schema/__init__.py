"""JSON Schemas of what commands read and of their options; those of what they print are files of `results/schema`."""

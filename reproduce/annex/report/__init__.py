"""The page of `reproduce report`: one self-contained HTML file of all results."""

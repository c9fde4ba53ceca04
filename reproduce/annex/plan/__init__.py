"""Plans as `reproduce plan` shows and keeps them: a table, a figure, a record, over one number of GPUs or several."""

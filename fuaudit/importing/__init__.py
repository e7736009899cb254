"""Data of one's own, and data sets that others publish, as folders from which the readers of data take rows."""

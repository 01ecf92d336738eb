"""A corpus of files, cut into units of rows."""

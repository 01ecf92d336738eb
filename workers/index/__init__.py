"""Ray tasks of `sbert index` and `sbert search`."""

"""Ray tasks of `sbert pairs`."""

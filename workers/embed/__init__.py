"""Ray actors and tasks of `sbert embed`."""

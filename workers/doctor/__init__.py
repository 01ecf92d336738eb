"""Checks that `sbert doctor` runs on each node."""

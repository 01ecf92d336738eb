"""Labelled text -> a better encoder: examples, objectives, the order of rows, the loop."""

"""Counts, metrics and samples -> pages and pictures."""

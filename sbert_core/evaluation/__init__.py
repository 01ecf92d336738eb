"""Scores of vectors on benchmarks. Every score is a function of arrays; no files are read here."""

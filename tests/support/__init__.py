"""Helpers of the tests: encoders, corpora, servers and processes to kill."""

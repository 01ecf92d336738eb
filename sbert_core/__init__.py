"""Arithmetic and text: encoders, neighbours, clusters. Knows nothing of Ray or the command line."""

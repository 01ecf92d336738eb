"""The vectors artifact: its rows, its parts, and who owns the vector of a text."""

"""`sbert demo`: the whole flow on the docstrings of this machine's Python."""

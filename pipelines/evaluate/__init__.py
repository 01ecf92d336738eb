"""`sbert evaluate`: models and benchmark files -> a table of scores."""

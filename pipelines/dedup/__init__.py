"""`sbert dedup`: one file of texts -> the same file without near-duplicates."""

"""`sbert prepare`: labelled files -> token-balanced training shards."""

"""`sbert search`: an index and queries -> hits, optionally reranked."""

"""`sbert index`: vectors -> HNSW or FAISS shards and a card with measured recall."""

"""Approximate nearest-neighbour search: HNSW and FAISS shards, their build and recall."""

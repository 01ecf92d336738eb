"""`sbert export`: vectors -> files that a vector store loads."""

"""`sbert train`: shards and a base model -> a fine-tuned encoder or cross-encoder."""

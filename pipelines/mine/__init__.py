"""`sbert mine`: ranking shards -> the same shards with hard negatives."""

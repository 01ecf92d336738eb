"""`sbert threshold`: vectors or pairs -> what a cosine threshold would mean."""

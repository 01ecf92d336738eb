"""`sbert apply`: clusters and a corpus -> the corpus without the removed rows."""

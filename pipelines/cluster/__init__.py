"""`sbert cluster`: pairs -> clusters, kept rows, a witness for every removed row."""

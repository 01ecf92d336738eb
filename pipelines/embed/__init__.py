"""`sbert embed`: a corpus and an encoder -> vectors, one row for one row."""

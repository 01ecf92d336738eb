"""`sbert pairs`: vectors -> pairs of similar rows with exact cosines and a certificate."""

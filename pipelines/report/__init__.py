"""`sbert report`: artifacts -> one self-contained HTML page and its data as JSON."""

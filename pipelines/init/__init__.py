"""`sbert init`: a commented job file to begin with."""

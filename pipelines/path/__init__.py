"""`sbert path`: an artifact -> the folder of its published data files."""

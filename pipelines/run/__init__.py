"""`sbert run`: a job file -> its stages in order, gates, one report."""

"""`sbert doctor`: checks of every node of a cluster, and what to do about what fails."""

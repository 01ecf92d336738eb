"""`sbert submit`: a job file -> a Ray job on a cluster, followed to its exit code."""

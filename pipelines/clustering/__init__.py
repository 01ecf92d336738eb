"""Parts of the cluster job."""

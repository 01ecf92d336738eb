"""Parts of the apply job."""

"""Parts of the report."""

"""Parts of `pairs`."""

"""Text -> tokens -> flat batches -> unit vectors."""

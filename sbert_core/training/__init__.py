"""Labelled text -> a fine-tuned encoder: examples, losses, the order of rows, the loop."""

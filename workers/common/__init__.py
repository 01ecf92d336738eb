"""What the workers of several commands share."""

"""Artifacts of commit 18f8697, and how they were made."""

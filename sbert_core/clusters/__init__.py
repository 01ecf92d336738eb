"""Pairs -> clusters: who stays, who goes, and because of whom."""

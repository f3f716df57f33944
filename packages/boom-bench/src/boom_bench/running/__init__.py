"""Scoring configurations, the growing results file, and where the work is done."""

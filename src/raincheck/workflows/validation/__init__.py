"""Checks of a workflow beyond its schema."""

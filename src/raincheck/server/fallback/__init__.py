"""Serve tasks to hosts without task support, through five tools and texts that a model reads."""

"""Serving on a Unix socket."""

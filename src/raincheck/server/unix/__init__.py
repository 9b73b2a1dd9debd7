"""Serve on a Unix socket."""

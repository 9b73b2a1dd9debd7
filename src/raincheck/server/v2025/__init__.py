"""Serve the tasks of protocol version 2025-11-25."""

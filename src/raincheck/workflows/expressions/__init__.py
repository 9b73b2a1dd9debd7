"""Expressions in workflow files, compiled in a sandbox."""

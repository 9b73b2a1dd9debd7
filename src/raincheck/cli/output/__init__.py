"""Printing: text, tables, progress and the log."""

"""Servers under attack: the files that they serve, their processes, and a caller with good manners."""

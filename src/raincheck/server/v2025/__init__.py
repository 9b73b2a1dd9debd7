"""The tasks of 2025-11-25, as a server answers them."""

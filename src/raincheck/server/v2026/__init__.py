"""The tasks extension of 2026-07-28, as a server answers it."""

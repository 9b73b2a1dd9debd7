"""What tests share: programs to run, servers to call, callers, and short names for what tests do often."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder of this repository."""

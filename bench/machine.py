"""Describe the machine of a measurement."""

import os
import platform
from pathlib import Path

_FACTS = Path("/proc/cpuinfo")


def machine(*parts: str) -> str:
    """Return a description of the cores, these parts, and the version of Python."""
    lines = _FACTS.read_text(encoding="utf-8").splitlines() if _FACTS.exists() else []
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")
    return ", ".join([f"{os.cpu_count()} cores ({model})", *parts, f"Python {platform.python_version()}"])

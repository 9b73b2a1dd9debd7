"""The memory of a process."""

import os
from pathlib import Path


def resident(pid: int | None = None) -> int | None:
    """Bytes that a process has, this one unless it is said which. None where the system does not say."""
    statm = Path(f"/proc/{'self' if pid is None else pid}/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else None

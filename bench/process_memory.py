"""The memory of a process."""

import os
from pathlib import Path


def resident_bytes(pid: int | None = None) -> int | None:
    """Return the resident bytes of a process (by default this one), or None where the system does not report them."""
    statm = Path(f"/proc/{'self' if pid is None else pid}/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else None

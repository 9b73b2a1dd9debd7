"""Which queue a tool's jobs are in.

Each version of a tool has a queue of its own, so that a worker gets jobs only for what it can run: an older worker does
not take what a newer one brought, and waits for nothing that only the newer one has.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from raincheck.core.records import Tool

READABLE = 14
"""Characters of a tool's name that a queue's shows, for whoever looks at the table."""

DIGEST = 12
"""Bytes. Procrastinate makes a channel of each queue, and a channel's name has 63 characters, 23 of them its own."""


@lru_cache(1_024)
def queue_of(namespace: str, tool: Tool) -> str:
    """The queue's name: of 39 characters at most, and another for every other tool, version or namespace."""
    digest = blake2b(digest_size=DIGEST)
    for part in (namespace, tool.name, tool.version):
        # With their lengths, so that no two of them can be written alike.
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return f"{re.sub('[^A-Za-z0-9_-]', '_', tool.name)[:READABLE]}.{digest.hexdigest()}"

"""What calls a server is in other folders: a FastMCP server is called as any other."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent

sys.path[:0] = [str(TESTS / folder) for folder in ("conformance", "peers", "server", "wire")]

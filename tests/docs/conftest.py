"""What docs show lives in `docs_src` and `scripts`, outside of any package: found from the repository's root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

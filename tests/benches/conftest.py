"""What is measured with lives in `bench`, outside of what is installed: found from the repository's root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

"""What the tests look at besides the package lives in `scripts`, outside of any package: found from the root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

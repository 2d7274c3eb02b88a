"""What the tests of this folder share can be imported by its file's name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

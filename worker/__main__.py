"""`python -m worker NAME [--deletions-only]`: an embedded worker that `lethe up` starts and watches."""

import sys

from app.config import Settings
from worker import embedded

embedded.main(Settings(), name=sys.argv[1], deletions_only="--deletions-only" in sys.argv[2:])

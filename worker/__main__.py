"""`python -m worker NAME [--deletions-only]`: an embedded worker that `lethe up` starts and watches."""

import sys

from app.config import Settings
from app.errors import LetheError
from worker import embedded

try:
    embedded.main(Settings(), name=sys.argv[1], deletions_only="--deletions-only" in sys.argv[2:])
except LetheError as error:
    sys.exit(f"error: {error.code}: {error.detail}")

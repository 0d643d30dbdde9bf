"""`python -m worker NAME [--deletions-only]`: embedded worker that `lethe up` starts and supervises."""

import sys

from app.config import Settings
from lethe.contract.problems import Problem
from worker import embedded

try:
    embedded.main(Settings(), name=sys.argv[1], deletions_only="--deletions-only" in sys.argv[2:])
except Problem as error:
    sys.exit(f"error: {error.code}: {error.detail}")

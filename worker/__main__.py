"""`python -m worker NAME`: the embedded worker that `lethe up` starts and watches."""

import sys

from app.config import Settings
from worker import embedded

embedded.main(Settings(), name=sys.argv[1])

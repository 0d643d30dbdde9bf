"""The server of Lethe as an installed application: its folders lie beside this file, under no name that others use.

A customer's own `app` is what it was: only processes of the server see these folders as `app`, `worker`, `migrations`.
"""

import os
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)

if _HERE not in sys.path:
    sys.path.insert(0, _HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))  # of those it starts

from app.cli import commands  # noqa: E402

__all__ = ["commands"]

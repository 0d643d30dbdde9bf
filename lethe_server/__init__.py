"""The server of Lethe as an installed application: its folders are inside this one, under no name that others use.

A customer's own `app` is what it was: only processes of the server see these folders as `app`, `worker`, `migrations`.
"""

import os
import sys
from pathlib import Path

_INSTALLED = Path(__file__).parent
_FOLDER = str(_INSTALLED if (_INSTALLED / "app").is_dir() else _INSTALLED.parent)
"""Of the folders: in a checkout they lie one above."""

if _FOLDER not in sys.path:
    sys.path.insert(0, _FOLDER)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_FOLDER, os.environ.get("PYTHONPATH")]))  # for what it starts

from app.cli import commands  # noqa: E402

__all__ = ["commands"]

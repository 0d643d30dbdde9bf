"""The examples in docs/sdk.md work as documented."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from tests.faults import processes
from tests.threads import apart

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.soak
def test_the_examples_print_as_documented(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples run in order and print the documented words. Only numbers and ids differ."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    compared = 0
    with processes.gateway(settings) as (_, address), processes.worker(settings), contextlib.ExitStack() as at_the_end:
        at_the_end.callback(lambda: names["client"].close())
        for kind, block in BLOCK.findall((ROOT / "docs" / "sdk.md").read_text()):
            if kind == "python":
                here = block.replace("http://127.0.0.1:8000", address).replace("/tmp/", f"{tmp_path}/")
                here = here.replace(".lethe/keys/admin.key", str(settings.resolved_admin_key_file()))
                with contextlib.redirect_stdout(printed):
                    apart(exec, here, names)
            else:
                assert words(printed.getvalue()) == words(block)
                printed = io.StringIO()
                compared += 1
    assert compared == 6


def words(text: str) -> list[str]:
    """Return the words of the text, with numbers and ids masked and progress lines left out, because their number
    varies."""
    text = re.sub(r"\b(ds|mdl|dr|run)_[0-9a-f]{20}\b", "ID", re.sub(r"^  .*\n", "", text, flags=re.MULTILINE))
    return re.sub(r"[0-9][0-9.,e-]*", "N", text).split()

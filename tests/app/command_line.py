"""What the command `lethe` is to tests: its arguments, and how it ended."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self.err
        return json.loads(self.out)


Lethe = Callable[..., Ended]


def refused(ended: Ended, code: str) -> None:
    """It ended with exit code 1 and one line, which names the condition."""
    assert (ended.code, ended.out) == (1, ""), (ended.code, ended.out, ended.err)
    assert ended.err.startswith(f"error: {code}: "), ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err

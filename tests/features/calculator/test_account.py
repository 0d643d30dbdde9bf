"""`lethe account bound`: the theorems on the command line, offline."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lethe.features.theorems import CALCULATOR, evaluate

LETHE = str(Path(sys.executable).with_name("lethe"))

pytestmark = pytest.mark.service


def lethe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LETHE, "account", *arguments], capture_output=True, text=True, timeout=240, check=False)


def test_a_theorem_is_evaluated() -> None:
    """Parameters are JSON, inf, or the reciprocal of another; the outputs are those of the calculator."""
    done = lethe("bound", "gdp_eps", "--param", "mu=0.3", "--param", "delta=1e-5")
    assert done.returncode == 0
    assert json.loads(done.stdout) == evaluate("gdp_eps", {"mu": 0.3, "delta": 1e-5})


def test_a_theorem_explains_itself() -> None:
    """Without parameters a bound says what it states, what it assumes, and what its parameters mean."""
    done = lethe("bound", "shift_mu")
    bound = CALCULATOR["shift_mu"]
    assert done.returncode == 0
    assert all(text in done.stdout for text in (bound.statement, bound.reference, *bound.assumptions))
    assert all(parameter.description in done.stdout for parameter in bound.parameters)


def test_all_theorems_are_listed() -> None:
    """`bounds` names every theorem of the calculator."""
    done = lethe("bounds")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(CALCULATOR)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["bound", "folklore"], "bound_unknown"),
        (["bound", "gdp_eps", "--param", "mu"], "input_invalid"),
        (["bound", "gdp_eps", "--param", "mu=-1", "--param", "delta=0.1"], "precondition_failed"),
        (["bound", "gdp_eps", "--param", "mu=1"], "precondition_failed"),
    ],
)
def test_a_wrong_question_is_one_line(arguments: list[str], code: str) -> None:
    """An unknown theorem or a parameter out of range ends in exit code 1 and one line that names it."""
    done = lethe(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {code}: ")
    assert done.stderr.count("\n") == 1

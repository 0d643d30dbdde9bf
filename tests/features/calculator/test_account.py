"""`lethe account bound`: the theorems on the command line, offline."""

from lethe.features.theorems import CALCULATOR, evaluate
from tests.command_line import Lethe, refused
from tests.tables import each


def test_theorem_is_evaluated(lethe: Lethe) -> None:
    """The command accepts parameters as JSON, as `inf` or as the reciprocal of another parameter, and prints the
    calculator's outputs."""
    done = lethe("account", "bound", "gdp_eps", "--param", "mu=0.3", "--param", "delta=1e-5")
    assert done.json == evaluate("gdp_eps", {"mu": 0.3, "delta": 1e-5})


def test_theorem_explains_itself(lethe: Lethe) -> None:
    """Without parameters, the command prints a theorem's statement, its assumptions and the meaning of its
    parameters."""
    done = lethe("account", "bound", "shift_mu")
    bound = CALCULATOR["shift_mu"]
    assert done.code == 0
    assert all(text in done.out for text in (bound.statement, bound.reference, *bound.assumptions))
    assert all(parameter.description in done.out for parameter in bound.parameters)


def test_all_theorems_are_listed(lethe: Lethe) -> None:
    """The command `bounds` lists every theorem of the calculator."""
    done = lethe("account", "bounds")
    assert [line.split()[0] for line in done.out.splitlines()] == list(CALCULATOR)


@each(
    ("arguments", "code"),
    [
        (["bound", "folklore"], "bound_unknown"),
        (["bound", "gdp_eps", "--param", "mu"], "input_invalid"),
        (["bound", "gdp_eps", "--param", "mu=-1", "--param", "delta=0.1"], "precondition_failed"),
        (["bound", "gdp_eps", "--param", "mu=1"], "precondition_failed"),
    ],
)
def test_invalid_input_is_refused_in_one_line(lethe: Lethe, arguments: list[str], code: str) -> None:
    """For an unknown theorem or a parameter out of range, the command exits with code 1 and a one-line error that
    contains the error code."""
    refused(lethe("account", *arguments), code)

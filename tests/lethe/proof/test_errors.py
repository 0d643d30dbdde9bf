import math
import pickle

import pytest

from lethe.proof import errors

CHECKS = [
    (errors.require_finite, [0.0, -1e300], [math.inf, -math.inf]),
    (errors.require_positive, [5e-324, 1e300], [0.0, -0.1, math.inf]),
    (errors.require_nonnegative, [0.0, 1e300], [-5e-324, math.inf]),
    (errors.require_fraction, [5e-324, 1 - 2**-53], [0.0, 1.0, -0.1, math.inf]),
]


@pytest.mark.parametrize(("check", "accepted", "refused"), CHECKS)
def test_checks_raise_domain_errors(check, accepted, refused):
    """A check accepts the values that its theorem allows. For all other values it raises a DomainError with the
    argument's name and value."""
    for value in accepted:
        check(some_name=value)
    for value in [*refused, math.nan]:
        with pytest.raises(errors.DomainError, match=f"some_name={value}"):
            check(some_name=value)


def test_checks_cover_every_value():
    """A check of several values raises an error if any one of them is out of range."""
    with pytest.raises(errors.DomainError, match=r"^Expected step_size=-0\.1 > 0$"):
        errors.require_positive(noise_scale=1.0, step_size=-0.1)


def test_precondition_error_names_its_condition():
    """The message of a PreconditionError starts with the name of its condition, and the error survives pickling."""
    error = pickle.loads(pickle.dumps(errors.PreconditionError("strong_convexity", "Expected l2=0 > 0")))
    assert error.name == "strong_convexity"
    assert str(error) == "strong_convexity: Expected l2=0 > 0"


def test_every_refusal_is_a_privacy_error():
    """Every error of `lethe.proof` is a PrivacyError and a ValueError."""
    for kind in (errors.DomainError, errors.PreconditionError, errors.InfeasibleError):
        assert issubclass(kind, errors.PrivacyError)
    assert issubclass(errors.PrivacyError, ValueError)

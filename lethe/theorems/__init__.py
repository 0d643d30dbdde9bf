"""The calculator: every theorem of the field that this product uses, measures itself against, or warns of.

`CALCULATOR` holds the bounds by name; `evaluate` computes one. Each is declared once, as a function whose arguments
are annotated with what they mean and where they live: `bound.py` reads the annotations, `symbols.py` defines them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from lethe.proof.errors import DomainError
from lethe.theorems import (
    conversions,
    cyclic,
    deletion,
    descent_to_delete,
    dp,
    langevin,
    langevin_sequences,
    noisy_gd,
    nonconvex,
    others,
    shift,
)
from lethe.theorems.bound import Bound, Outputs, Parameter

__all__ = ["CALCULATOR", "Bound", "Parameter", "evaluate"]

_SUBJECTS = (
    conversions,
    dp,
    deletion,
    noisy_gd,
    nonconvex,
    langevin,
    langevin_sequences,
    descent_to_delete,
    shift,
    cyclic,
    others,
)

CALCULATOR: Mapping[str, Bound] = MappingProxyType(
    {bound.name: bound for subject in _SUBJECTS for bound in vars(subject).values() if isinstance(bound, Bound)}
)


def evaluate(name: str, params: Mapping[str, object]) -> Outputs:
    """The named bound at these parameters, as JSON has them: infinity is "inf", and "1/n" the reciprocal of n.

    Raises `DomainError` for an unknown bound, an unknown or missing parameter, a wrong type or a number out of range;
    `PreconditionError` or `NotionError` for a hypothesis violated or denied; `InfeasibleError` for a target out of
    reach.

    >>> evaluate("gdp_eps", {"mu": 0.05, "delta": "1/12000"})
    Traceback (most recent call last):
    lethe.proof.errors.DomainError: Expected delta='1/12000' to be a number
    >>> evaluate("group_privacy_inverse", {"eps": 3.0, "delta": 0.0, "k": 3})
    {'eps': 1.0, 'delta': 0.0}
    """
    if name not in CALCULATOR:
        raise DomainError(f"Expected the name of a bound, not {name!r}")
    return CALCULATOR[name].evaluate(params)

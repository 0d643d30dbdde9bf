"""Theorems: all those from the literature that this product uses, compares itself with, or warns about.

`CALCULATOR` maps names to bounds; `evaluate` computes one of them. Each bound is declared once, as a function whose
arguments are annotated with their meaning and range: `bound.py` reads the annotations, `symbols.py` defines them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from lethe.features.theorems import deletion, langevin, others, privacy, shift
from lethe.features.theorems.bound import Bound, Outputs, Parameter, expect

__all__ = ["CALCULATOR", "Bound", "Parameter", "evaluate"]

_SUBJECTS = (privacy, deletion, langevin, shift, others)

CALCULATOR: Mapping[str, Bound] = MappingProxyType(
    {bound.name: bound for subject in _SUBJECTS for bound in vars(subject).values() if isinstance(bound, Bound)}
)


def evaluate(name: str, params: Mapping[str, object]) -> Outputs:
    """Return a bound's outputs for JSON parameters, where "inf" stands for infinity and "1/n" for the reciprocal of n.

    Raises `DomainError` for an unknown bound, an unknown or missing parameter, a wrong type or a number out of range;
    `PreconditionError` or `NotionError` for a violated or denied hypothesis; and `InfeasibleError` for a target that
    cannot be reached.

    >>> evaluate("gdp_eps", {"mu": 0.05, "delta": "1/12000"})
    Traceback (most recent call last):
    lethe.proof.errors.DomainError: Expected delta='1/12000' to be a number
    >>> evaluate("group_privacy_inverse", {"eps": 3.0, "delta": 0.0, "k": 3})
    {'eps': 1.0, 'delta': 0.0}
    """
    expect(name in CALCULATOR, f"the name of a bound, not {name!r}")
    return CALCULATOR[name].evaluate(params)

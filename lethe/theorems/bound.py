"""A bound: one theorem as a function of numbers, declared in one place.

The signature is the declaration. Each argument is annotated with a symbol of `symbols.py`, a type together with its
`Domain` (what it means, where it lives); `bound` reads them and adds what a reader of the theorem wants to know.

Nothing is clamped. A number outside its domain raises `DomainError`. A `hypothesis` is a condition that no number
shows, such as a decision rule that was fixed in advance: it is taken to hold, as the theorem takes it, and refused with
its own error as soon as the caller says that it does not. A result that is not a number is refused too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, Literal, get_args, get_type_hints

from lethe.proof.errors import DomainError, NotionError, PreconditionError, PrivacyError
from lethe.theorems import work

Kind = Literal["real", "integer", "boolean", "choice", "reals", "integers", "words", "segments"]
Outputs = dict[str, Any]
"""By name: float, int, str, bool, None, or a list of numbers."""

_EACH = 100
"""Work of a theorem that is a formula."""
LONGEST = 10_000
"""No list may be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The meaning of a symbol, and the values that it takes.

    `interval`, in the usual notation, holds every number of a real, an integer or a list: "(1, inf)" is open at both
    ends, "(1, inf]" contains infinity. `refusal` makes a boolean a hypothesis: the error that its denial raises.
    """

    kind: Kind
    meaning: str
    interval: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    refusal: type[PreconditionError] | type[NotionError] | None = None

    def contains(self, value: float) -> bool:
        """Return True if `value` lies in the interval; NaN never does.

        >>> real("a rate", "[0, 1)").contains(0.0), real("a rate", "[0, 1)").contains(1.0)
        (True, False)
        """
        low, high = self.ends
        above = low < value if self.interval[0] == "(" else low <= value
        below = value < high if self.interval[-1] == ")" else value <= high
        return above and below

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; infinite where it has none."""
        if not self.interval:
            return -math.inf, math.inf
        low, high = map(float, self.interval[1:-1].split(","))
        return low, high


def real(meaning: str, interval: str, unit: str = "") -> Domain:
    return Domain(kind="real", meaning=meaning, interval=interval, unit=unit)


def integer(meaning: str, interval: str, unit: str = "") -> Domain:
    return Domain(kind="integer", meaning=meaning, interval=interval, unit=unit)


def choice(meaning: str, *choices: str) -> Domain:
    return Domain(kind="choice", meaning=meaning, choices=choices)


def hypothesis(meaning: str, refusal: type[PreconditionError] | type[NotionError]) -> Domain:
    return Domain(kind="boolean", meaning=meaning, refusal=refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument of a bound. One that is not required has a default; None means not given."""

    name: str
    domain: Domain
    required: bool
    default: object

    @property
    def kind(self) -> Kind:
        return self.domain.kind

    @property
    def choices(self) -> tuple[str, ...]:
        return self.domain.choices

    @property
    def meaning(self) -> str:
        return self.domain.meaning

    @property
    def unit(self) -> str:
        """The unit of the number, or of each in the list; empty where it has none."""
        return self.domain.unit

    @property
    def interval(self) -> str | None:
        """The interval of the number, or of each in the list: "(0, 1]"."""
        return self.domain.interval or None

    @property
    def low(self) -> float | None:
        """The lower end of the interval; None if there is none."""
        low, _ = self.domain.ends
        return None if math.isinf(low) else low

    @property
    def high(self) -> float | None:
        _, high = self.domain.ends
        return None if math.isinf(high) else high

    @property
    def is_hypothesis(self) -> bool:
        """A condition that no number shows: true as the theorem takes it, refused if it is denied."""
        return self.domain.refusal is not None

    @property
    def description(self) -> str:
        """Meaning, unit and range."""
        return f"{self.meaning}; in {self.interval}" if self.interval else self.meaning

    def accept(self, value: object, given: Mapping[str, object]) -> Any:
        """The value the function is called with. `given`: all parameters, for a real written "1/n"."""
        if value is None and self.default is None and not self.required:
            return None
        match self.kind:
            case "real":
                return self._real(self.name, value, given)
            case "integer":
                return self._integer(self.name, value)
            case "reals":
                return [self._real(f"{self.name}[{i}]", item, {}) for i, item in enumerate(self._list(value))]
            case "integers":
                return [self._integer(f"{self.name}[{i}]", item) for i, item in enumerate(self._list(value))]
            case "segments":
                return [self._segment(f"{self.name}[{i}]", item) for i, item in enumerate(self._list(value))]
            case "words":
                words = self._list(value)
                if not all(isinstance(word, str) for word in words):
                    raise DomainError(f"Expected {self.name}={value!r} to be a list of strings")
                return words
            case "choice":
                if value not in self.choices:
                    raise DomainError(f"Expected {self.name}={value!r} to be one of {', '.join(self.choices)}")
                return value
            case "boolean":
                if not isinstance(value, bool):
                    raise DomainError(f"Expected {self.name}={value!r} to be true or false")
                return self._affirmed(value)

    def _affirmed(self, value: bool) -> bool:
        if self.domain.refusal is PreconditionError and not value:
            raise PreconditionError(self.name, f"not established: {self.domain.meaning}")
        if self.domain.refusal is NotionError and not value:
            raise NotionError(f"{self.name}: not established: {self.domain.meaning}")
        return value

    def _real(self, name: str, value: object, given: Mapping[str, object]) -> float:
        if isinstance(value, str) and value.startswith("1/") and value[2:] in given:
            value = _reciprocal(name, value, given[value[2:]])
        if isinstance(value, str) and value in ("inf", "Infinity"):
            value = math.inf
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DomainError(f"Expected {name}={value!r} to be a number")
        if not self.domain.contains(value):
            raise DomainError(f"Expected {name}={value} in {self.domain.interval}")
        try:
            return float(value)
        except OverflowError:
            raise DomainError(f"Expected {name} to fit a float") from None

    def _integer(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise DomainError(f"Expected {name}={value!r} to be an integer")
        if not self.domain.contains(value):
            raise DomainError(f"Expected {name}={value} in {self.domain.interval}")
        return int(value)

    def _list(self, value: object) -> Sequence[object]:
        if not isinstance(value, list | tuple):
            raise DomainError(f"Expected {self.name}={value!r} to be a list")
        if len(value) > LONGEST:
            raise DomainError(f"Expected at most {LONGEST} entries of {self.name}, not {len(value)}")
        return value

    def _segment(self, name: str, value: object) -> tuple[int, float]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise DomainError(f"Expected {name}={value!r} to be a pair [steps, difference of the gradients]")
        return self._integer(f"{name}[0]", value[0]), self._real(f"{name}[1]", value[1], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One theorem: what it says, what the caller must establish, and the function that evaluates it."""

    name: str
    title: str
    reference: str
    statement: str
    assumptions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    outputs: Mapping[str, str]
    function: Callable[..., Outputs]

    def evaluate(self, params: Mapping[str, object]) -> Outputs:
        """The outputs, ready for JSON (infinity as "inf"). Raises the errors of the module docstring."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in params:
            if name not in known:
                raise DomainError(f"Expected no parameter {name!r} of {self.name}, which has {', '.join(known)}")
        for name, parameter in known.items():
            if parameter.required and name not in params:
                raise DomainError(f"Expected parameter {name!r} of {self.name}: {parameter.description}")
        try:
            arguments = {name: known[name].accept(params.get(name, known[name].default), params) for name in known}
            work.spend(_EACH + sum(len(value) for value in arguments.values() if isinstance(value, list)))
            results = self.function(**arguments)
            work.spend(sum(len(value) for value in results.values() if isinstance(value, list)))
        except PrivacyError:
            raise
        except (ArithmeticError, ValueError, RuntimeError) as error:  # the last: a root finder gave up
            raise DomainError(f"Expected {self.name} to have a value in floating point here: {error}") from error
        return {name: self._json(name, value) for name, value in results.items()}

    def _json(self, name: str, value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise DomainError(f"Expected {self.name} to have a value in floating point here: {name} is not a number")
        return str(value) if isinstance(value, float) and math.isinf(value) else value


def bound(
    title: str, *, reference: str, statement: str, outputs: Mapping[str, str], assumptions: Sequence[str] = ()
) -> Callable[[Callable[..., Outputs]], Bound]:
    """Makes a bound of a function whose arguments are annotated with symbols."""

    def declare(function: Callable[..., Outputs]) -> Bound:
        hints = get_type_hints(function, include_extras=True)
        return Bound(
            name=function.__name__,
            title=title,
            reference=reference,
            statement=statement,
            assumptions=tuple(assumptions),
            parameters=tuple(
                Parameter(
                    name=name,
                    domain=_domain(hints[name]),
                    required=argument.default is Argument.empty,
                    default=None if argument.default is Argument.empty else argument.default,
                )
                for name, argument in signature(function).parameters.items()
            ),
            outputs=outputs,
            function=function,
        )

    return declare


def require(condition: bool, name: str, detail: str) -> None:
    """Raises `PreconditionError` unless the named condition holds."""
    if not condition:
        raise PreconditionError(name, f"Expected {detail}")


def steps_up(steps: float) -> int:
    """A number of steps as an integer >= 0, rounded up, and past whatever rounding errors there are in it."""
    return max(0, math.ceil(steps + 1e-12 * abs(steps)))


def _domain(hint: Any) -> Domain:
    """The domain of `Annotated[T, domain]`, or of that or None."""
    for part in (hint, *get_args(hint)):
        for note in getattr(part, "__metadata__", ()):
            if isinstance(note, Domain):
                return note
    raise TypeError(f"Expected {hint} to be annotated with a Domain")


def _reciprocal(name: str, written: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise DomainError(f"Expected {name}={written!r} to be the reciprocal of a positive number, not of {value!r}")
    return 1 / value

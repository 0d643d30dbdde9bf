"""A bound: one theorem as a function of numbers.

The signature is the declaration. Each argument is annotated with a symbol from `symbols.py`, which is a type with its
`Domain` (meaning and range). `bound` reads the annotations and adds the title, source, statement and assumptions from
the table of the function's name in `theorems.toml`.

No number is clamped: a number outside its domain raises `DomainError`. A `hypothesis` is a condition that numbers
cannot show, such as that a decision rule was fixed in advance; a `notion` is a condition on the guarantee's meaning.
The theorem assumes both, and denying one raises its error. A result that is not a number is also refused.
"""

import functools
import importlib.resources
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, get_args, get_type_hints

from lethe.features.analysis import work
from lethe.proof.errors import DomainError, PreconditionError, PrivacyError

Kind = Literal["real", "integer", "boolean", "choice", "reals", "integers", "words", "segments"]
Outputs = dict[str, Any]
"""Results by name: float, int, str, bool, None, or a list of numbers."""

_FORMULA_WORK = 100
"""Units of work for a theorem with a closed formula."""
_MAX_ENTRIES = 10_000
"""Maximum length of a list."""
_EVERYWHERE = "[-inf, inf]"


class NotionError(PrivacyError):
    """Error raised when guarantees of different notions are combined."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Meaning of a symbol and the values that it can take.

    `interval`, in the usual notation, must contain the number, or each number in a list: "(1, inf)" is open at both
    ends, "(1, inf]" contains infinity. `unit` is the unit of the number, or of each number in the list. `refusal` makes
    a boolean a hypothesis and is the error raised if the hypothesis is denied.
    """

    kind: Kind
    meaning: str
    interval: str | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    refusal: type[PreconditionError] | type[NotionError] | None = None

    def contains(self, value: float) -> bool:
        """Return True if `value` lies in the interval. NaN lies in no interval.

        >>> real("a rate", "[0, 1)").contains(0.0), real("a rate", "[0, 1)").contains(1.0)
        (True, False)
        """
        interval = self.interval or _EVERYWHERE
        low, high = _ends(interval)
        above = low < value if interval[0] == "(" else low <= value
        below = value < high if interval[-1] == ")" else value <= high
        return above and below

    @property
    def low(self) -> float | None:
        """Lower end of the interval, or None if it is unbounded below."""
        return self._finite_end(0)

    @property
    def high(self) -> float | None:
        """Upper end of the interval, or None if it is unbounded above."""
        return self._finite_end(1)

    def _finite_end(self, side: int) -> float | None:
        end = _ends(self.interval or _EVERYWHERE)[side]
        return None if math.isinf(end) else end

    @property
    def is_hypothesis(self) -> bool:
        """True for a condition that numbers cannot verify and that is assumed to hold unless denied."""
        return self.refusal is not None

    @property
    def description(self) -> str:
        """Meaning and range of the symbol."""
        return f"{self.meaning}; in {self.interval}" if self.interval else self.meaning


real = partial(Domain, "real")
integer = partial(Domain, "integer")
choice = partial(Domain, "choice")
hypothesis = partial(Domain, "boolean", refusal=PreconditionError)
notion = partial(Domain, "boolean", refusal=NotionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Domain):
    """Argument of a bound. An optional parameter has a default; None stands for an omitted value."""

    name: str
    required: bool
    default: object

    def accept(self, value: object, params: Mapping[str, object]) -> Any:
        """Return the function argument for `value`. `params` has all parameters, to resolve a real written as "1/n".

        Raises:
            DomainError: if the value has the wrong type or is out of range.
            PreconditionError: or `NotionError`, if a hypothesis is denied.
        """
        if value is None and self.default is None and not self.required:
            return None
        match self.kind:
            case "real":
                return self._real(self.name, _without_reciprocal(self.name, value, params))
            case "integer":
                return self._integer(self.name, value)
            case "reals" | "integers" | "segments":
                convert = {"reals": self._real, "integers": self._integer, "segments": self._segment}[self.kind]
                return [convert(f"{self.name}[{i}]", item) for i, item in enumerate(self._list(value))]
            case "words":
                words = self._list(value)
                expect(all(isinstance(word, str) for word in words), f"{self.name}={value!r} to be a list of strings")
                return words
            case "choice":
                expect(value in self.choices, f"{self.name}={value!r} to be one of {', '.join(self.choices)}")
                return value
            case "boolean":
                expect(isinstance(value, bool), f"{self.name}={value!r} to be true or false")
                return self._affirmed(value)

    def _affirmed(self, value: object) -> object:
        if value or self.refusal is None:
            return value
        detail = f"not established: {self.meaning}"
        if self.refusal is PreconditionError:
            raise PreconditionError(self.name, detail)
        raise NotionError(f"{self.name}: {detail}")

    def _real(self, name: str, value: object) -> float:
        if isinstance(value, str) and value in ("inf", "Infinity"):
            value = math.inf
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DomainError(f"Expected {name}={value!r} to be a number")
        expect(self.contains(value), f"{name}={value} in {self.interval}")
        try:
            return float(value)
        except OverflowError:
            raise DomainError(f"Expected {name} to fit a float") from None

    def _integer(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise DomainError(f"Expected {name}={value!r} to be an integer")
        expect(self.contains(value), f"{name}={value} in {self.interval}")
        return int(value)

    def _list(self, value: object) -> Sequence[object]:
        if not isinstance(value, list | tuple):
            raise DomainError(f"Expected {self.name}={value!r} to be a list")
        expect(len(value) <= _MAX_ENTRIES, f"at most {_MAX_ENTRIES} entries of {self.name}, not {len(value)}")
        return value

    def _segment(self, name: str, value: object) -> tuple[int, float]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise DomainError(f"Expected {name}={value!r} to be a pair [steps, difference of the gradients]")
        return self._integer(f"{name}[0]", value[0]), self._real(f"{name}[1]", value[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One theorem: its statement, the assumptions that the caller must establish, and the function that computes it."""

    name: str
    title: str
    reference: str
    statement: str
    assumptions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    outputs: Mapping[str, str]
    function: Callable[..., Outputs]

    def evaluate(self, params: Mapping[str, object]) -> Outputs:
        """Return the outputs, ready for JSON (infinity as "inf"). Raises the errors named in the module docstring."""
        by_name = {parameter.name: parameter for parameter in self.parameters}
        for name in params:
            expect(name in by_name, f"no parameter {name!r} of {self.name}, which has {', '.join(by_name)}")
        for name, parameter in by_name.items():
            is_given = name in params or not parameter.required
            expect(is_given, f"parameter {name!r} of {self.name}: {parameter.description}")
        try:
            arguments = {name: item.accept(params.get(name, item.default), params) for name, item in by_name.items()}
            work.spend(_FORMULA_WORK + sum(len(value) for value in arguments.values() if isinstance(value, list)))
            results = self.function(**arguments)
            work.spend(sum(len(value) for value in results.values() if isinstance(value, list)))
        except PrivacyError:
            raise
        # A root finder that gives up raises RuntimeError.
        except (ArithmeticError, ValueError, RuntimeError) as error:
            raise DomainError(f"Expected {self.name} to have a value in floating point here: {error}") from error
        return {name: self._json(name, value) for name, value in results.items()}

    def _json(self, name: str, value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise DomainError(f"Expected {self.name} to have a value in floating point here: {name} is not a number")
        return str(value) if isinstance(value, float) and math.isinf(value) else value


def bound(function: Callable[..., Outputs], *, name: str = "", **fixed: Any) -> Bound:
    """Build a bound from a function whose arguments, except those in `fixed`, are annotated with symbols. Its texts are
    read from `theorems.toml` under `name`, by default the function's name."""
    omitted = inspect.Parameter.empty
    hints = get_type_hints(function, include_extras=True)
    name = name or function.__name__
    texts = _texts()[name]
    return Bound(
        name=name,
        title=texts["title"],
        reference=texts["reference"],
        statement=texts["statement"],
        assumptions=tuple(texts.get("assumptions", ())),
        parameters=tuple(
            Parameter(
                **asdict(_domain(hints[argument.name])),
                name=argument.name,
                required=argument.default is omitted,
                default=None if argument.default is omitted else argument.default,
            )
            for argument in inspect.signature(function).parameters.values()
            if argument.name not in fixed
        ),
        outputs=texts["outputs"],
        function=partial(function, **fixed),
    )


@functools.cache
def _texts() -> dict[str, Any]:
    return tomllib.loads((importlib.resources.files("lethe.features.theorems") / "theorems.toml").read_text("utf8"))


def expect(condition: bool, detail: str) -> None:
    """Raise `DomainError` unless a condition on a theorem's numbers holds."""
    if not condition:
        raise DomainError(f"Expected {detail}")


def require(condition: bool, name: str, detail: str) -> None:
    """Raise `PreconditionError` unless a theorem's named condition holds."""
    if not condition:
        raise PreconditionError(name, f"Expected {detail}")


def steps_up(steps: float) -> int:
    """Round a number of steps up to an integer >= 0, allowing for the number's rounding error."""
    return max(0, math.ceil(steps + 1e-12 * abs(steps)))


def num_batches(total: int, batch: int, *, at_most: int) -> int:
    """Return `total` / `batch`. Raises `DomainError` if the quotient is not an integer or exceeds `at_most`."""
    number, rest = divmod(total, batch)
    expect(not rest and number <= at_most, f"total={total} to be a multiple of batch={batch}, at most {at_most} times")
    return number


def root_gap(base: float, rise: float) -> float:
    """Return sqrt(base + rise) - sqrt(base), without cancellation."""
    return rise / (math.sqrt(base + rise) + math.sqrt(base))


def geometric(ratio: float, terms: int) -> float:
    """Return 1 + ratio + ... + ratio^(terms - 1)."""
    if ratio == 1 or terms == 0:
        return float(terms)
    return math.expm1(terms * math.log(ratio)) / (ratio - 1) if ratio > 0 else 1.0


def _ends(interval: str) -> tuple[float, float]:
    low, high = map(float, interval[1:-1].split(","))
    return low, high


def _domain(hint: Any) -> Domain:
    """Return the domain from the annotation `Annotated[T, domain]`, or from its union with None."""
    for part in (hint, *get_args(hint)):
        for note in getattr(part, "__metadata__", ()):
            if isinstance(note, Domain):
                return note
    raise TypeError(f"Expected {hint} to be annotated with a Domain")


def _without_reciprocal(name: str, value: object, params: Mapping[str, object]) -> object:
    """Return the number that "1/n" stands for, or any other value unchanged."""
    if not isinstance(value, str) or not value.startswith("1/") or value[2:] not in params:
        return value
    n = params[value[2:]]
    if isinstance(n, bool) or not isinstance(n, int | float) or not 0 < n < math.inf:
        raise DomainError(f"Expected {name}={value!r} to be the reciprocal of a positive number, not of {n!r}")
    return 1 / n

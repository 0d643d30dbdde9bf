"""Methods: how a model trains and forgets. Langevin unlearning (`lethe.proof.langevin`) is the core's method; features
add methods through `METHODS` in their `methods` module."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe import sockets
from lethe.proof import accountant, errors
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method: its settings, its accountant, and the fixed texts of its certificates.

    Every method's mechanisms have `Mechanism`'s problem settings, `learn_steps`, `num_batches`, `method` and `to_json`;
    if a feature adds the method, their documents state `method`. The type `Mechanism` stands for all of them here.

    Attributes:
        name, theorem: Names of the method and of its bound, used in the API, ledgers and certificates.
        continues: True if a run can continue from the live version. Otherwise each version is trained from scratch.
        invariants, limits: Texts included in each of the method's certificates.
        calibrate: Return the mechanism for settings and the keywords of `calibration.mechanism_for`. Raises
            `PrivacyError` for anything that the method does not support; nothing may be ignored.
        read: Parse the document of a mechanism. Raises `PrivacyError`.
        started, advance: Chain before the first run of a mechanism, and after one more run.
        recent: Given a chain's (number, run) pairs, newest first, return the runs that affect its numbers, oldest
            first.
        unlearning_mu: mu of a chain against training on the current data, after `records` more records became null.
        deletion_mu: mu of a chain for a person's `records`, which became null after `steps_present` steps.
        law: Given a mechanism, a canary plan, and the records of a canary or None, return the law of the plan's lanes.
        release_mu: mu that publishing the version from a run of `steps` costs a record, under replacement by another.
        squares: Squared mu of an exposure's versions against a null record. The squares are added to compose versions.
        epsilon: Return an epsilon at a delta, tighter than the one converted from mu, for exposures to this method
            (`release` and `adaptive` only); None if the conversion from mu is exact.
    """

    name: str
    theorem: str
    continues: bool
    invariants: Mapping[str, str]
    limits: Sequence[str]
    calibrate: Callable[..., Any]
    read: Callable[[dict[str, Any]], Any]
    started: Callable[[Mechanism], accountant.Chain]
    advance: Callable[[accountant.Chain, accountant.Run], accountant.Chain]
    recent: Callable[[Mechanism, Iterable[tuple[int, accountant.Run]]], list[accountant.Run]]
    unlearning_mu: Callable[..., float]
    deletion_mu: Callable[..., float]
    law: Callable[..., Any]
    release_mu: Callable[..., float]
    squares: Callable[[accountant.Exposure], Iterator[float]]
    epsilon: Callable[..., float] | None = None


@functools.cache
def all_methods() -> dict[str, Method]:
    """Return the installed methods by name, the core's method first."""
    # Imported late because the method of the core uses modules that import this one.
    from lethe.proof.langevin import LANGEVIN

    installed = (LANGEVIN, *sockets.plugs("lethe.features", "methods", "METHODS"))
    by_name = {method.name: method for method in installed}
    assert len(by_name) == len(installed), "two methods have the same name"
    return by_name


def named(name: Any) -> Method:
    """Return the method called `name`. Raises `PreconditionError` if it is not installed."""
    methods = all_methods()
    if not isinstance(name, str) or name not in methods:
        raise errors.PreconditionError(
            "method_installed", f"Expected one of the methods installed here: {', '.join(methods)}"
        )
    return methods[name]


def of(mechanism: Mechanism) -> Method:
    """Return the method that `mechanism` uses."""
    return named(mechanism.method)


def read(document: dict[str, Any]) -> Mechanism:
    """Parse a mechanism's document, whatever its method. Raises `PreconditionError`."""
    mechanism: Mechanism = named(document.get("method", Mechanism.method)).read(document)
    return mechanism


def replay(mechanism: Mechanism, runs: Iterable[accountant.Run], *, steps_before: int = 0) -> accountant.Chain:
    """Return a mechanism's chain after all of `runs`, like `accountant.replay` but for any method."""
    method, whole = of(mechanism), tuple(runs)
    errors.require_count(0, steps_before=steps_before)
    if steps_before and not method.continues:
        raise errors.PreconditionError("history_complete", f"Expected no steps before the history by {method.name}")
    # Look the chain up only once, because another thread may remove it.
    chain = _replayed.get((mechanism, steps_before, whole))
    if chain is not None:
        return chain
    before = _replayed.get((mechanism, steps_before, whole[:-1]))
    if before is None:
        start = accountant.imported(mechanism, steps=steps_before) if steps_before else method.started(mechanism)
        chain = functools.reduce(method.advance, whole, start)
    else:
        chain = method.advance(before, whole[-1])
    if len(_replayed) >= _MAX_REPLAYED:
        # Take the key from a copy, because another thread may change the cache.
        _replayed.pop(next(iter(_replayed.copy())), None)
    _replayed[mechanism, steps_before, whole] = chain
    return chain


_replayed: dict[tuple[Mechanism, int, tuple[accountant.Run, ...]], accountant.Chain] = {}
"""Cache of the most recently replayed chains, because a model's next version adds only one run."""
_MAX_REPLAYED = 64


def adaptive_mu(exposures: Iterable[accountant.Exposure]) -> float:
    """Return the mu against observers who read every version and choose deletions accordingly (`zero_out` adjacency).

    Conditionally on the versions published while the records were present, everything after the deletion has the same
    law with and without the records, because the run that forgets starts from a published version. Only these versions
    count, and they compose, whatever their methods: mu^2 is the sum of (records mu_release)^2 over the versions of
    every model trained on the records.

    Assumptions: the number of versions and the steps of each either do not depend on published versions, or depend on
    them only in such a way that this sum stays below a bound set in advance. In the second case that bound is the
    guarantee (Smith and Thakurta 2022).
    """
    return math.sqrt(math.fsum(square for exposure in exposures for square in of(exposure.mechanism).squares(exposure)))

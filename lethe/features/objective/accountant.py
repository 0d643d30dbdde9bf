"""Guarantees of objective perturbation: (epsilon, delta) and mu per version, and over several versions by convolution.

P is the law of a version with the records in question and Q the law without them: with null records for `zero_out`,
with other records for `replace`. Every function bounds both directions, P against Q and Q against P, takes the solver's
tolerance into account, and rounds outward. The proofs, under the names used here, are in
`docs/mathematics/objective-perturbation.md`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

# scipy loads scipy.special only when it is first used.
import scipy

from lethe.features.objective.losses import PrivacyLoss, Tail, of_gaussian
from lethe.features.objective.mechanism import ObjectivePerturbation
from lethe.proof import conversion, errors
from lethe.proof.mechanism import Adjacency
from lethe.proof.rounding import sum_rounded_up, up

MAX_RECORDS = 1000
"""Maximum number of records that one person can have."""
_SOLVER_DEVIATIONS = 9.0
_MARGIN = 1e-9
"""Relative margin added to results, larger than the rounding errors of their computation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """Versions (`versions` >= 0) that a model published while it contained `records` >= 1 records of one person."""

    mechanism: ObjectivePerturbation
    versions: int
    records: int = 1

    def __post_init__(self) -> None:
        errors.require_count(0, versions=self.versions)
        errors.require_count(1, records=self.records)


def log_determinant(mechanism: ObjectivePerturbation, *, records: int = 1) -> float:
    """Return kappa, the maximum log-ratio of the Hessians' determinants with and without `records` records.

    Per record: (C - 1) log(1 + 1 / (C Lambda)) for softmax over C classes, log(1 + 1 / (4 Lambda)) for a single score.

    >>> from lethe.features.objective.calibration import choose
    >>> m = choose(num_slots=1000, num_columns=10, num_classes=2, epsilon=1.0, delta=1e-4)
    >>> 0 < log_determinant(m) < 0.25 / m.regularisation
    True
    """
    classes, strength = mechanism.num_scores, mechanism.regularisation
    if classes == 1:
        return up(records * math.log1p(up(0.25 / strength)))
    return up(records * (classes - 1) * math.log1p(up(1 / (classes * strength))))


def tail(mechanism: ObjectivePerturbation, *, records: int = 1, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Tail:
    """Return a bound on delta(epsilon) for one part of a version, in both directions.

    The slopes of a record lie in a segment [0, s] for a single score, and in the hull of 0 and the C - 1 differences
    e_k - e_y for softmax. The loss is convex in the slopes, and hence largest at a vertex of their product. delta is at
    most a sum over the vertices, each term being the delta of a pair of Gaussians.
    """
    errors.require_count(1, records=records)
    if records > MAX_RECORDS:
        raise errors.InfeasibleError(f"Expected records={records} <= {MAX_RECORDS}")
    classes, kappa = mechanism.num_scores, log_determinant(mechanism, records=records)
    others, edge = (1, 1.0) if classes == 1 else (classes - 1, math.sqrt(2))
    replaced = adjacency is Adjacency.REPLACE
    if replaced and records == 1 and classes > 1:
        # Of two edges of different vertices only one pair in each row is antiparallel; others make 60 degrees or more.
        counts = {math.sqrt(2): 2 * others, math.sqrt(6): others * (others - 1), math.sqrt(8): others}
        counts = {distance: count for distance, count in counts.items() if count}
    else:
        moved = records * (2 if replaced else 1)
        counts = {k * edge: math.comb(moved, k) * others**k for k in range(1, moved + 1)}
    vertices = tuple((math.log(count), mechanism.mu_of_distance(up(distance))) for distance, count in counts.items())
    return Tail(vertices=vertices, shift=kappa, shift_back=kappa if replaced else 0.0)


def deletion_mu(mechanism: ObjectivePerturbation) -> float:
    """Return the mu of `deletion` and `unlearning`: twice the solver's mu.

    Both versions compared come from a solver that ends within its tolerance of the same minimiser. If the solver
    depends only on the rows present and fresh noise, mu is 0; this bound holds for any solver that meets the tolerance.
    """
    return up(2 * mechanism.solver_mu)


def mu(
    mechanism: ObjectivePerturbation, *, records: int = 1, adjacency: Adjacency = Adjacency.ZERO_OUT, versions: int = 1
) -> float:
    """Return a mu for which `versions` versions are jointly mu-GDP, in both directions.

    One record against null is mu_1-GDP (`_record_mu`). Group privacy multiplies this by the number of records, doubled
    for `replace`; squares add up over versions and labels. The result composes with the mu of other mechanisms.
    """
    errors.require_count(1, records=records)
    errors.require_count(0, versions=versions)
    apart = records * (2 if adjacency is Adjacency.REPLACE else 1)
    parts = versions * mechanism.num_parts
    of_versions = up(math.sqrt(parts) * up(apart * _record_mu(mechanism)))
    return sum_rounded_up(of_versions, up(2 * up(math.sqrt(versions) * mechanism.solver_mu)))


def delta(
    mechanism: ObjectivePerturbation, *, epsilon: float, records: int = 1, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> float:
    """Return one version's delta at `epsilon`: the smallest of the bounds by vertices, by convolution and by mu.

    Symbols: `epsilon` >= 0 in nats; `records` >= 1 of one person. `adjacency` is `zero_out` to compare the records with
    null, in both directions, or `replace` for other records in their place, as in `release`. Result in [0, 1].
    """
    errors.require_nonnegative(epsilon=epsilon)
    bound = tail(mechanism, records=records, adjacency=adjacency)
    by_mu = conversion.gdp_delta(epsilon=epsilon, mu=mu(mechanism, records=records, adjacency=adjacency))
    laws = _laws(((mechanism, 1, records),), adjacency, 0.0)
    convolved = _with_solver(lambda at: max(law.delta(at) for law in laws), mechanism.solver_mu)
    direct = _with_solver(bound.delta, mechanism.solver_mu)(epsilon) if mechanism.num_parts == 1 else 1.0
    return min(by_mu, convolved(epsilon), direct)


def epsilon(
    mechanism: ObjectivePerturbation, *, delta: float, records: int = 1, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> float:
    """Return one version's epsilon at 0 < `delta` < 1. See `delta` for the symbols."""
    errors.require_fraction(delta=delta)
    bound = tail(mechanism, records=records, adjacency=adjacency)
    by_mu = conversion.gdp_epsilon(mu=mu(mechanism, records=records, adjacency=adjacency), delta=delta)
    laws = _laws(((mechanism, 1, records),), adjacency, 0.0)
    curves = [lambda at: max(law.delta(at) for law in laws)]
    if mechanism.num_parts == 1:
        curves.append(bound.delta)
    return min(by_mu, *(_inverse(_with_solver(curve, mechanism.solver_mu), delta, by_mu) for curve in curves))


def adaptive_delta(published: Sequence[Releases], *, epsilon: float, mu: float = 0.0) -> float:
    """Return the joint delta(epsilon) of all versions, comparing the records with null, for observers who read every
    version and adapt requests to it. `mu` >= 0 bounds what other mechanisms published about the same records."""
    errors.require_nonnegative(epsilon=epsilon, mu=mu)
    return min(
        _adaptive(published, mu)(epsilon), conversion.gdp_delta(epsilon=epsilon, mu=adaptive_mu(published, mu=mu))
    )


def adaptive_epsilon(published: Sequence[Releases], *, delta: float, mu: float = 0.0) -> float:
    """Return the `adaptive` epsilon at 0 < `delta` < 1: the smallest proved by convolution, mu or a single version."""
    errors.require_fraction(delta=delta)
    errors.require_nonnegative(mu=mu)
    by_mu = conversion.gdp_epsilon(mu=adaptive_mu(published, mu=mu), delta=delta)
    if not mu and len(published) == 1 and published[0].versions == 1:
        return _epsilon(published[0].mechanism, delta=delta, records=published[0].records)
    return min(by_mu, _inverse(_adaptive(published, mu), delta, by_mu))


def adaptive_mu(published: Sequence[Releases], *, mu: float = 0.0) -> float:
    """Return a joint mu of all published versions: the root of the summed squares, plus twice the solver's mu."""
    squares = [up(mu * mu)]
    solver = [0.0]
    for part in published:
        parts = part.versions * part.mechanism.num_parts
        squares.append(up(parts * up(up(part.records * _record_mu(part.mechanism)) ** 2)))
        solver.append(up(part.versions * up(part.mechanism.solver_mu**2)))
    return sum_rounded_up(up(math.sqrt(sum_rounded_up(*squares))), up(2 * up(math.sqrt(sum_rounded_up(*solver)))))


_epsilon = epsilon


@lru_cache(maxsize=1024)
def _record_mu(mechanism: ObjectivePerturbation) -> float:
    """Return mu_1 such that one part of a version, with an exact solver, is mu_1-GDP for one record against null.

    For a single score there is a closed form: the Gaussian trade-off of mu, shifted by kappa beyond the loss t at which
    the total mass is 1, exceeds that of mu most at t. For softmax, mu_1 is computed from the curve.
    """
    bound = tail(mechanism)
    if mechanism.num_scores > 1:
        return max(of_curve.gaussian() for of_curve in (bound, bound.reversed()))
    (_, gauss), kappa = bound.vertices[0], bound.shift
    share = _mass_beyond(gauss, kappa)
    return up((gauss + scipy.special.ndtri(share) - scipy.special.ndtri(share * math.exp(-kappa))) * (1 + _MARGIN))


def _mass_beyond(gauss: float, kappa: float) -> float:
    """Return Q(L > t), rounded up: the mass of losses that kappa shifts. t solves
    P(L > t) - e^-kappa Q(L > t) = P(L > 0) - Q(L > 0)."""

    def excess(t: float) -> float:
        under_p, under_q = (float(scipy.special.ndtr(sign * gauss / 2 - t / gauss)) for sign in (1, -1))
        return under_p - math.exp(-kappa) * under_q - math.erf(gauss / math.sqrt(8))

    low, high = 0.0, gauss * (gauss / 2 + 40)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > _MARGIN * gauss else (low, middle)
    return float(scipy.special.ndtr(-low / gauss - gauss / 2)) * (1 + _MARGIN)


def _with_solver(curve: Callable[[float], float], solver_mu: float) -> Callable[[float], float]:
    """Return the published versions' curve from the curve of exact minimisers, by the triangle inequality at both ends.

    With e, d such that the solver's mu implies (e, d), P(O) <= e^e P'(O) + d <= e^e (e^(epsilon - 2e) Q'(O) + delta') +
    d <= e^epsilon Q(O) + e^(epsilon - e) d + e^e delta' + d.
    """
    lost = up(solver_mu * (_SOLVER_DEVIATIONS + solver_mu / 2))
    extra = conversion.gdp_delta(epsilon=lost, mu=solver_mu)

    def published(epsilon: float) -> float:
        inner = epsilon * (1 - _MARGIN) - 2 * lost
        if inner < 0:
            return 1.0
        return min(up(up(math.exp(lost) * curve(inner)) + extra * (1 + math.exp(min(epsilon, 700.0)))), 1.0)

    return published


def _inverse(curve: Callable[[float], float], delta: float, at_most: float) -> float:
    """Return the smallest epsilon at which the decreasing `curve` is <= `delta`, rounded up; inf if above `at_most`."""
    low, high = 0.0, up(at_most)
    if not math.isfinite(high) or curve(high) > delta:
        return math.inf
    while high - low > 1e-10 * (1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return high


def _adaptive(published: Sequence[Releases], mu: float) -> Callable[[float], float]:
    parts = tuple((part.mechanism, part.versions, part.records) for part in published if part.versions)
    laws = _laws(parts, Adjacency.ZERO_OUT, mu)
    squares = [up(versions * up(mechanism.solver_mu**2)) for mechanism, versions, _ in parts]
    solver_mu = up(math.sqrt(sum_rounded_up(0.0, *squares)))
    return _with_solver(lambda at: max((law.delta(at) for law in laws), default=0.0), solver_mu)


@lru_cache(maxsize=256)
def _laws(
    parts: tuple[tuple[ObjectivePerturbation, int, int], ...], adjacency: Adjacency, mu: float
) -> tuple[PrivacyLoss, ...]:
    """Return the law of all versions' joint privacy loss, in both directions."""
    directions = []
    for back in (False, True):
        laws = [of_gaussian(mu)] if mu else []
        for mechanism, versions, records in parts:
            bound = tail(mechanism, records=records, adjacency=adjacency)
            bound = bound.reversed() if back else bound
            laws.append(bound.loss().times(versions * mechanism.num_parts))
        if laws:
            total = laws[0]
            for law in laws[1:]:
                total = total.plus(law)
            directions.append(total)
    return tuple(directions)

"""Langevin unlearning, the core's method, as a `Method` built from its accountant and calibration."""

from functools import partial

from lethe.proof import accountant, calibration, canary_test, certificate, mechanism, methods

LANGEVIN = methods.Method(
    name=mechanism.Mechanism.method,
    theorem=accountant.THEOREM,
    continues=True,
    invariants=certificate.INVARIANTS,
    limits=certificate.LIMITS,
    calibrate=calibration.mechanism_for,
    read=mechanism.Mechanism.from_json,
    started=accountant.started,
    advance=accountant.advance,
    recent=accountant.recent,
    unlearning_mu=accountant.unlearning_mu,
    deletion_mu=accountant.deletion_mu,
    law=canary_test.law_of_steps,
    release_mu=partial(accountant.release_mu, adjacency=mechanism.Adjacency.REPLACE),
    squares=accountant.squares,
)

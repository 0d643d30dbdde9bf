"""Joint guarantees for several models, compared with Gaussians that attain them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special

from lethe.proof import conversion, joint, methods
from lethe.proof.accountant import Exposure
from lethe.proof.errors import DomainError
from lethe.proof.guarantees import Evidence, Notion
from tests.lethe.proof.test_certificate import MECHANISM, evidence

OTHER = replace(MECHANISM, noise_scale=0.3)


def by_notion(found: joint.Joint) -> dict[Notion, float]:
    return {one.notion: one.mu for one in found.guarantees}


def of_model(made: Evidence, notion: Notion) -> float:
    return next(one.mu for one in made.guarantees() if one.notion is notion)


def test_one_model_has_the_guarantee_of_its_certificate() -> None:
    """For a single model, the joint guarantee equals the one in the model's certificate. This does not cover `release`,
    which is about people whose records are still present."""
    made = evidence()
    assert by_notion(joint.of({"mdl_1": made})) == {
        notion: pytest.approx(of_model(made, notion), rel=1e-15)
        for notion in (Notion.UNLEARNING, Notion.DELETION, Notion.ADAPTIVE)
    }


def test_mu_squared_adds_up() -> None:
    """The mu^2 of models with different mechanisms, records and deltas add up, and the joint guarantee uses the
    smallest delta."""
    made = {"mdl_1": evidence(), "mdl_2": evidence(mechanism=OTHER, records=1, delta=1e-6)}
    found = joint.of(made)
    for notion in (Notion.UNLEARNING, Notion.DELETION):
        expected = math.hypot(*(of_model(one, notion) for one in made.values()))
        assert by_notion(found)[notion] == pytest.approx(expected)
    assert found.models == ("mdl_1", "mdl_2")
    assert {one.delta for one in found.guarantees} == {1e-6}
    for one in found.guarantees:
        assert one.epsilon == conversion.gdp_epsilon(mu=one.mu, delta=1e-6)
        assert one.reference_process.startswith("of all these models together")


@pytest.mark.parametrize(("models", "epsilon"), [(2, 1.47), (10, 3.62)])
def test_joint_epsilon_of_models_with_epsilon_one(models: int, epsilon: float) -> None:
    """At delta = 10^-5, two models with epsilon 1 have a joint epsilon of 1.47, and ten such models have one of
    3.62."""
    mu = conversion.gdp_mu(epsilon=1.0, delta=1e-5)
    assert conversion.gdp_epsilon(mu=math.sqrt(models) * mu, delta=1e-5) == pytest.approx(epsilon, abs=0.01)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=5))
def test_the_sum_matches_independent_gaussians(mus: list[float]) -> None:
    """For independent outputs that attain their mu, the best test uses their sum weighted by mu. Its accuracy is
    exactly what the joint mu allows."""
    weights = np.array(mus)
    spread = math.sqrt(float((weights**2).sum()))
    attained = special.ndtr(float((weights * weights).sum()) / spread / 2)
    assert conversion.gdp_balanced_accuracy(mu=spread) == pytest.approx(attained, rel=1e-9)


def test_versions_are_counted_once() -> None:
    """`adaptive` already includes the versions of every model. A model that appears in two statements is therefore
    counted once, with the larger exposure."""
    own = Exposure(mechanism=MECHANISM, records=2, releases=((7, 2), (50, 1)))
    fewer = Exposure(mechanism=MECHANISM, records=2, releases=((7, 1), (50, 1)))
    third = Exposure(mechanism=OTHER, records=1, releases=((50, 1),))
    made = {
        "mdl_1": evidence(exposures={"mdl_1": own, "mdl_3": third}),
        "mdl_2": evidence(exposures={"mdl_1": fewer, "mdl_2": own}),
    }
    assert by_notion(joint.of(made))[Notion.ADAPTIVE] == methods.adaptive_mu([own, third, own])


def test_no_models_have_no_joint_guarantee() -> None:
    """Requesting the joint guarantee of an empty set of models raises a DomainError instead of returning 0."""
    with pytest.raises(DomainError):
        joint.of({})

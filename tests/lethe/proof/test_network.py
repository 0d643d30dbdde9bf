"""The public network of a mechanism. The mechanism states it if there is one, and every certificate that depends on it
names it."""

import dataclasses
import json
from typing import Any

import pytest

from lethe.proof import certificate
from lethe.proof.accountant import Exposure
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import Linearisation, PublicNetwork
from tests.lethe.proof import test_certificate
from tests.lethe.proof.test_certificate import MECHANISM, RELEASES

NETWORK = PublicNetwork(sha256="ab" * 32, licence="Apache-2.0", opset=17)
MOVED = Linearisation(layers=("a", "b"), rank=4, seed=7, least_norm=0.5, offset=False)
TANGENT = PublicNetwork(
    sha256="cd" * 32, licence="MIT", opset=20, dp_ledger="https://example.org/l", linearisation=MOVED
)


def on(network: PublicNetwork | None) -> Mechanism:
    return dataclasses.replace(MECHANISM, network=network)


def statement(own: PublicNetwork | None, other: PublicNetwork | None = None) -> dict[str, Any]:
    """Return a certificate for a model on the network `own`, where the person's rows also fed a model on `other`."""
    exposures = {
        "mdl_1": Exposure(mechanism=on(own), records=2, releases=RELEASES, stretches=2),
        "mdl_2": Exposure(mechanism=on(other), records=1, releases=((50, 1),), stretches=2),
    }
    return test_certificate.statement(test_certificate.evidence(mechanism=on(own), exposures=exposures), audited=False)


@pytest.mark.parametrize("network", [NETWORK, TANGENT])
def test_mechanisms_with_a_network_round_trip(network):
    """A mechanism with a network is read back unchanged from its JSON, and differs from a mechanism without one."""
    document = json.loads(json.dumps(on(network).to_json()))
    assert Mechanism.from_json(document) == on(network)
    assert on(network) != on(None)
    assert on(None).to_json() == {name: said for name, said in document.items() if name != "network"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sha256": "AB" * 32}, DomainError),
        ({"licence": " "}, DomainError),
        ({"licence": "MIT\nand more"}, DomainError),
        ({"opset": 0}, DomainError),
        ({"opset": True}, DomainError),
        ({"dp_ledger": ""}, DomainError),
        ({"weights": "x"}, PreconditionError),
        ({"linearisation": {}}, PreconditionError),
        ({"linearisation": MOVED.to_json() | {"layers": ["a", "a"]}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"layers": []}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"layers": "ab"}}, PreconditionError),
        ({"linearisation": MOVED.to_json() | {"rank": -1}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"rank": True}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"seed": 0.5}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"least_norm": 0.0}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"least_norm": float("nan")}}, DomainError),
        ({"linearisation": MOVED.to_json() | {"least_norm": 1}}, PreconditionError),
        ({"linearisation": MOVED.to_json() | {"offset": 1}}, DomainError),
    ],
)
def test_an_invalid_network_is_refused(change, error):
    """A mechanism whose network has an additional field or an invalid value is refused."""
    document = on(TANGENT).to_json()
    with pytest.raises(error):
        Mechanism.from_json(document | {"network": document["network"] | change})


@pytest.mark.parametrize(
    ("objective", "num_classes", "width"),
    [(Objective.LEAST_SQUARES, 1, None), (Objective.HUBER_REGRESSION, 1, 0.2), (Objective.SMOOTHED_HINGE, 2, 1.0)],
)
def test_a_tangent_model_of_an_unproved_objective_is_refused(objective, num_classes, width):
    """A tangent model is refused if the constants of its objective have not been proved for linearised networks."""
    mechanism = dataclasses.replace(
        on(NETWORK), objective=objective, num_classes=num_classes, loss_width=width, step_size=0.1
    )
    with pytest.raises(DomainError, match="linearisation"):
        dataclasses.replace(mechanism, network=TANGENT)


def test_a_null_network_is_refused():
    """A mechanism document is refused if its network is null."""
    with pytest.raises(PreconditionError):
        Mechanism.from_json(on(None).to_json() | {"network": None})


def test_a_certificate_names_the_network_in_its_limits():
    """A certificate's limits include a sentence that identifies the network by its digest or by its own ledger."""
    of_records, of_features, of_both = statement(None), statement(NETWORK), statement(NETWORK, TANGENT)
    assert of_records["limits"] == certificate.LIMITS
    (said,) = of_features["limits"][len(certificate.LIMITS) :]
    assert "ab" * 32 in said
    assert "never learned from this person" in said
    assert of_both["limits"] == [*of_features["limits"], TANGENT.rests_on]
    assert "https://example.org/l" in TANGENT.rests_on
    assert "never" not in TANGENT.rests_on


@pytest.mark.parametrize("put", [[], [TANGENT.rests_on], [NETWORK.rests_on.replace("never ", "")]])
def test_a_certificate_that_hides_the_network_is_refused(put):
    """In offline verification, a statement is refused if its limits do not match its mechanism's network."""
    document = statement(NETWORK)
    certificate.check(document)
    with pytest.raises(PreconditionError, match="limits_of_format"):
        certificate.check(document | {"limits": [*certificate.LIMITS, *put]})

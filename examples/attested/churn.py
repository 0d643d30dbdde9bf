"""A trainer that lives elsewhere: it is asked to forget somebody, trains again without them, and signs that it did.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/attested/churn.py

Lethe holds none of the rows. In production the key stays with the trainer, and the webhook `retraining_due` starts the
job; here the script does both in turn.
"""

import hashlib
import json
import os
import uuid
from typing import Any

import numpy as np
from joserfc.jwk import OKPKey

from lethe import Client
from lethe.features.attested.trainer import retrain
from lethe.features.systems import bundle

Row = tuple[str, list[float], int]
run = uuid.uuid4().hex[:8]
random = np.random.default_rng(7)
features = random.normal(size=(200, 3))
left = (features @ [1.0, -2.0, 0.5] + random.logistic(size=200) > 0).astype(int)
rows: list[Row] = [(f"{run}-{at:03}", features[at].tolist(), int(left[at])) for at in range(len(left))]


def train(given: list[Row]) -> bytes:
    inputs, targets = np.array([row[1] for row in given]), np.array([row[2] for row in given])
    weights = np.linalg.solve(inputs.T @ inputs + np.eye(inputs.shape[1]), inputs.T @ (targets - targets.mean()))
    return json.dumps({"weights": weights.tolist(), "bias": float(targets.mean())}).encode()


def person(row: Row) -> str:
    return row[0]


def digest(artefact: bytes) -> str:
    return hashlib.sha256(artefact).hexdigest()


key: Any = OKPKey.generate_key("Ed25519").as_dict(private=True)
details = {"code_revision": "churn.py", "environment": f"numpy {np.__version__}"}
with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client:
    trainer = client.attested_trainers.create(
        name=f"Churn {run}", contact="data science", webhook_url="https://airflow.example/lethe", public_key=key["x"]
    )
    first, manifest = retrain(client, trainer.id, key, rows=rows, person=person, train=train, **details)
    print(f"first training: {manifest.num_identifiers} people, may be served: ", end="")
    print(client.attested_trainers.serving(artefact_sha256=digest(first)).may_serve)

    request = client.deletion_requests.create(subject_id=f"{run}-042")
    due = client.attested_trainers.get(trainer.id).next_retraining
    assert due is not None
    print(f"retraining due: {due.num_waiting} waiting, {(due.latest_at - request.submitted_at).days} days left")
    second, manifest = retrain(client, trainer.id, key, rows=rows, person=person, train=train, **details)
    print(f"second training: {manifest.num_identifiers} people, {manifest.num_served} request served")
    print("the first artefact:", client.attested_trainers.serving(artefact_sha256=digest(first)).reason)
    print(
        "the second artefact, may be served:",
        client.attested_trainers.serving(artefact_sha256=digest(second)).may_serve,
    )

    proof = client.deletion_requests.bundle(request.id)
    verified = bundle.verify(proof.model_dump_json(), client.certificates.public_keys())
    [line] = [one for one in verified.statement["lines"] if one["system"]["id"] == trainer.id]
    print(f"verified offline: {line['grade']} by {line['evidence']['public_key']}")
    client.attested_trainers.retire(trainer.id)

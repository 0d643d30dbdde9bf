"""One person, one request by e-mail, and everything that learned from them: a bundle says how surely each forgot.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/everything/forget.py

The people are the first 2,000 of examples/adult, with made-up e-mail addresses, phone numbers and customer numbers. A
linear model of Lethe's knows them by e-mail, boosted trees by phone number, a pipeline and a recommender that live
elsewhere by customer number. The last two are played by this script: in production each holds its key, and is called by
a webhook. Trainers need bubblewrap (docs/trainers.md).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from joserfc.jwk import OKPKey

from lethe import Client
from lethe.features.attested.trainer import retrain
from lethe.features.systems import acknowledgements

EXAMPLES = Path(__file__).parents[1]
TREES = EXAMPLES / "trainers" / "adult_xgboost"
PEOPLE, PERSON = 2000, 42
run = uuid.uuid4().int % 10_000
census = pa.csv.read_csv(EXAMPLES / "adult" / "train.csv")[:PEOPLE]
emails = [f"person-{number:04}@{run}.example" for number in range(PEOPLE)]
phones = [f"+49 151 {run:04}{number:04}" for number in range(PEOPLE)]
customers = [f"customer-{run}-{number:04}" for number in range(PEOPLE)]


def people_by(ids: list[str]) -> pa.Table:
    """The census data with these ids in the column person."""
    return census.set_column(census.column_names.index("person"), "person", pa.array(ids))


def train(rows: list[tuple[str, int, int]]) -> bytes:
    """The pipeline that lives elsewhere: hours of work by age, by least squares."""
    ages, hours = np.array([row[1:] for row in rows], dtype=float).T
    return json.dumps({"run": run, "weights": np.polyfit(ages, hours, 1).tolist()}).encode()


def new_key() -> Any:
    return OKPKey.generate_key("Ed25519").as_dict(private=True)


def wait_for_training(client: Client, trainer_id: str, *, other_than: str | None = None) -> str:
    """Return the id of the trainer's live training once it is another one."""
    deadline = time.monotonic() + 300
    while (live := client.trainers.get(trainer_id).live_training_id) in (None, other_than):
        if time.monotonic() > deadline:
            raise TimeoutError(client.trainers.get(trainer_id).error_code or "no training in five minutes")
        time.sleep(0.2)
    return live


def verify_offline(bundle: Any, public_keys: Any) -> str:
    """Return what `lethe certificate verify` prints of a bundle; it needs the issuer's public keys and no service."""
    with tempfile.TemporaryDirectory() as folder:
        file, jwks = Path(folder) / "bundle.json", Path(folder) / "jwks.json"
        file.write_text(bundle.model_dump_json())
        jwks.write_text(json.dumps(public_keys))
        lethe = Path(sys.executable).with_name("lethe")
        command = [lethe, "certificate", "verify", file, "--jwks", jwks]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


pipeline_key, recommender_key = new_key(), new_key()
pipeline: dict[str, Any] = {
    "rows": list(zip(customers, census["age"].to_pylist(), census["hours_per_week"].to_pylist(), strict=True)),
    "person": lambda row: row[0],
    "train": train,
    "code_revision": "forget.py",
    "environment": f"numpy {np.__version__}",
}
with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client:
    loaded = client.identities.load_rows(
        {"email": email, "phone": phone, "customer_id": customer}
        for email, phone, customer in zip(emails, phones, customers, strict=True)
    )
    print(f"identity map: {loaded.num_links:,} people")

    dataset = client.datasets.upload(
        people_by(emails), name=f"income {run}", schema=EXAMPLES / "adult" / "schema.json", subject_kind="email"
    )
    model = client.models.create(name=f"income {run}", dataset_id=dataset.id)
    table = client.training_tables.upload(
        people_by(phones), name=f"income by phone {run}", subject_column="person", subject_kind="phone"
    )
    trees = client.trainers.create(
        name=f"income, boosted trees {run}",
        table_id=table.id,
        command=["python", "train.py"],
        files={"train.py": (TREES / "train.py").read_text()},
        lock=(TREES / "lock.txt").read_text(),
        artefacts=["model.json", "categories.json"],
        metrics=["accuracy"],
    )
    hours = client.attested_trainers.create(
        name=f"Hours {run}",
        contact="data science",
        webhook_url="https://airflow.example/lethe",
        public_key=pipeline_key["x"],
    )
    recommender = client.systems.create(
        name=f"Recommender {run}",
        contact="recommendations team",
        webhook_url="https://recommender.example/lethe",
        public_key=recommender_key["x"],
        identifier_kinds=["customer_id"],
    )
    retrain(client, hours.id, pipeline_key, **pipeline)
    first_trees = wait_for_training(client, trees.id)
    client.models.wait(model.id, timeout_seconds=300)
    print("learned: a linear model by e-mail, boosted trees by phone number, a pipeline by customer number")

    request = client.deletion_requests.create(
        subject_id=emails[PERSON], kind="email", regulation="gdpr", external_id=f"ticket {run}"
    )
    print(f"{request.status}: identity unknown: {request.identity_unknown}")

    _, manifest = retrain(client, hours.id, pipeline_key, **pipeline)
    print(f"the pipeline trained again on {manifest.num_identifiers:,} people")
    [task] = client.system_tasks.list(system_id=recommender.id, request_id=request.id)
    named = {"id": task.id, "system_id": recommender.id, "request_id": request.id}
    jws = acknowledgements.sign(recommender_key, task=named, by="nightly job")
    client.system_tasks.acknowledge(task.id, jws=jws)
    print("the recommender signed that it has deleted them")

    wait_for_training(client, trees.id, other_than=first_trees)
    done = client.deletion_requests.wait(request.id, timeout_seconds=300)
    print(f"{done.status}: {done.outcome}")
    print(verify_offline(client.deletion_requests.bundle(request.id), client.certificates.public_keys()), end="")

    client.trainers.retire(trees.id)
    client.attested_trainers.retire(hours.id)
    client.systems.retire(recommender.id)

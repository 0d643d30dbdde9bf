"""Bring a table of your own: a frame, a public schema, a dry run, a model, and somebody who is forgotten.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/tables/own_table.py

The table is scikit-learn's: 569 tumours, 30 measurements of each. Every tenth row plays a public sample, from which the
schema is proposed; it stays out of the model, because a schema is for good.
"""

import os

from sklearn.datasets import load_breast_cancer

from lethe import Client
from lethe.contract.models import TargetIn
from lethe.tables import infer, preview
from lethe.verification import verify

table = load_breast_cancer(as_frame=True).frame.assign(person=lambda frame: [f"patient-{row}" for row in frame.index])
public, people = table[::10], table.drop(table.index[::10])
train, test = people[::2], people[1::2]

schema = infer(public, label="target", subject="person")
tried = preview(train, schema=schema, epsilons=(1.0,))
print(f"scikit-learn gets {tried.scikit_learn:.1%} right; for epsilon 1")
for plan in tried.plans:
    print(f"  l2 = {plan.l2:.4f}: {plan.accuracy:.1%} right, a request takes {plan.request_passes:.1f} passes")
best = max(tried.plans, key=lambda plan: plan.accuracy)

with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client:
    dataset = client.datasets.upload(train, name="tumours", schema=schema)
    held_out = client.datasets.upload(test.assign(person="test-" + test["person"]), name="held out", schema=schema)
    print("warnings:", dataset.warnings or "none")
    model = client.models.create(
        name="tumours",
        dataset_id=dataset.id,
        evaluation_dataset_id=held_out.id,
        target=TargetIn(epsilon=1.0, delta=1e-4),
        l2=best.l2,
    )
    model = client.models.wait(model.id, timeout_seconds=300)
    accuracy = client.models.version(model.id, model.live_version).metrics["accuracy"]
    print(f"version {model.live_version}: {accuracy:.1%} right on rows that were held out")

    request = client.deletion_requests.create(subject_id=train["person"].iloc[0])
    request = client.deletion_requests.wait(request.id, timeout_seconds=300)
    certificate = client.certificates.get(request.models[0].certificate_id)
    verified = verify(certificate.jws, client.certificates.public_keys())
    unlearning = next(one for one in verified.statement["guarantees"] if one["notion"] == "unlearning")
    print(f"{request.status}: epsilon = {unlearning['epsilon']:.3f} of them is left, verified offline")

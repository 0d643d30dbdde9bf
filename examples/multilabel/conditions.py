"""Several labels a record: one model of all of them, from a column that lists them, and somebody who is forgotten.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/multilabel/conditions.py

The people are made up by scikit-learn: 2000 of them with 20 measurements, each of whom has any of four labels, or none.
"""

import csv
import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from lethe import Client
from lethe.verification import verify

PERSON = "patient-0042"
LABELS = ("asthma", "diabetes", "gout", "migraine")
WIDTH, MOST = 20, 10
counts, has = make_multilabel_classification(2000, n_features=WIDTH, n_classes=len(LABELS), n_labels=2, random_state=0)
counts = np.minimum(counts, MOST)
held_out = np.arange(len(counts)) % 4 == 3
fitted = OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(counts[~held_out], has[~held_out])
print(f"scikit-learn: {(fitted.predict(counts[held_out]) == has[held_out]).mean():.1%} of labels right")

MEASURED = [f"measured_{number:02}" for number in range(WIDTH)]
SCHEMA = {
    "columns": {
        "person": {"role": "subject"},
        **{name: {"kind": "standard", "center": 3, "scale": 3} for name in MEASURED},
        "conditions": {"role": "labels", "values": list(LABELS), "separator": ";"},
    }
}


def written(file: Path, chosen: np.ndarray) -> Path:
    """A csv file of some people, with their conditions in one column."""
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["person", *MEASURED, "conditions"])
        for number in np.flatnonzero(chosen):
            conditions = ";".join(np.array(LABELS)[has[number] == 1])
            rows.writerow([f"patient-{number:04}", *counts[number], conditions])
    return file


with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client, tempfile.TemporaryDirectory() as folder:
    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    people = client.datasets.upload(written(Path(folder) / "people.csv", ~held_out), schema=SCHEMA)
    others = client.datasets.upload(written(Path(folder) / "others.csv", held_out), schema=SCHEMA)
    print("warnings:", people.warnings or "none")
    model = client.models.create(name="conditions", dataset_id=people.id, evaluation_dataset_id=others.id)
    model = client.models.wait(model.id, timeout_seconds=300)
    print(f"version {model.live_version}: {model.metrics['label_accuracy']:.1%} of labels right, {model.objective}")

    request = client.deletion_requests.create(subject_id=PERSON)
    request = client.deletion_requests.wait(request.id, timeout_seconds=300)
    [certificate] = client.deletion_requests.certificates(request.id)
    verified = verify(certificate.jws, client.certificates.public_keys())
    unlearning = next(one for one in verified.guarantees if one.notion == "unlearning")
    print(f"{request.status}: epsilon = {unlearning.epsilon:.3f} of {PERSON} is left, verified offline")
    record = dict(zip(MEASURED, counts[42].tolist(), strict=True))
    [predicted] = client.models.predictions(model.id, records=[record]).predictions
    print("somebody with their measurements would have:", ", ".join(predicted.labels) or "none of them")

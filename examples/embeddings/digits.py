"""Embeddings that a network made, brought as a list column of a parquet file, and a model of them that forgets.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/embeddings/digits.py

The images are scikit-learn's 1797 digits; in place of a network's embedding stand 128 rectified random sums of their
pixels, drawn from a fixed seed: public, as a frozen network is that saw none of the people. One image is one person.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from lethe import Client
from lethe.verification import verify

PERSON = "writer-0042"
WIDTH = 128
images, digits = load_digits(return_X_y=True)
weights = np.random.default_rng(0).normal(size=(images.shape[1], WIDTH)) / 8
embeddings = np.maximum((images - 8) / 8 @ weights, 0).astype(np.float32)
held_out = np.arange(len(digits)) % 4 == 3
fitted = LogisticRegression(max_iter=1000).fit(embeddings[~held_out], digits[~held_out])
print(f"scikit-learn: {fitted.score(embeddings[held_out], digits[held_out]):.1%} right")

SCHEMA = {
    "columns": {
        "person": {"role": "subject"},
        "embedding": {"kind": "vector", "length": WIDTH, "center": 0.4, "scale": 0.6, "clip": 4},
        "digit": {"role": "label", "values": [str(digit) for digit in range(10)]},
    }
}
"""No number in it was read from the data: 0.4 and 0.6 are about mean and spread of a rectified normal number."""


def written(file: Path, chosen: np.ndarray) -> Path:
    """A parquet file of some people, whose embeddings are lists of numbers."""
    columns = {
        "person": [f"writer-{number:04}" for number in np.flatnonzero(chosen)],
        "embedding": pa.array(list(embeddings[chosen]), pa.list_(pa.float32(), WIDTH)),
        "digit": digits[chosen].astype(str),
    }
    pq.write_table(pa.table(columns), file)
    return file


with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client, tempfile.TemporaryDirectory() as folder:
    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    people = client.datasets.upload(written(Path(folder) / "people.parquet", ~held_out), schema=SCHEMA)
    others = client.datasets.upload(written(Path(folder) / "others.parquet", held_out), schema=SCHEMA)
    print("warnings:", people.warnings or "none")
    model = client.models.create(name="digits", dataset_id=people.id, evaluation_dataset_id=others.id)
    model = client.models.wait(model.id, timeout_seconds=300)
    print(f"version {model.live_version}: {model.metrics['accuracy']:.1%} right on people who were held out")

    request = client.deletion_requests.create(subject_id=PERSON)
    request = client.deletion_requests.wait(request.id, timeout_seconds=300)
    [certificate] = client.deletion_requests.certificates(request.id)
    verified = verify(certificate.jws, client.certificates.public_keys())
    unlearning = next(one for one in verified.guarantees if one.notion == "unlearning")
    print(f"{request.status}: epsilon = {unlearning.epsilon:.3f} of {PERSON} is left, verified offline")
    [predicted] = client.models.predictions(model.id, records=[embeddings[42].tolist()]).predictions
    print(f"their image is still read as a {predicted.label}, by a model that does not know it")

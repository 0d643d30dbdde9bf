"""Counts: how often people see a doctor in a year, as a rate that is learned, measured, and forgets somebody.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/counts/visits.py

The data are those of the RAND Health Insurance Experiment that statsmodels brings: 20,190 person-years, each of which
counts as a person here. A year with more than 30 visits counts as one with 30.
"""

import os
from typing import Any

import numpy as np
import statsmodels.datasets as econometric
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe import Client
from lethe.verification import verify

PERSON, BOUND = "person-00042", 30
YES_OR_NO: dict[str, Any] = {"kind": "numeric", "min": 0, "max": 1}
SCHEMA = {
    "columns": {
        "person": {"role": "subject"},
        "lncoins": {"kind": "standard", "center": 2, "scale": 1},
        "lpi": {"kind": "standard", "center": 5, "scale": 1.5},
        "fmde": {"kind": "standard", "center": 4, "scale": 2},
        "disea": {"kind": "standard", "center": 10, "scale": 5},
        **dict.fromkeys(("idp", "physlm", "hlthg", "hlthf", "hlthp"), YES_OR_NO),
        "mdvis": {"role": "target", "min": 0, "max": BOUND, "outside": "clip", "counts": True},
    }
}

table = econometric.randhie.load_pandas().data.astype({"mdvis": int})
table.insert(0, "person", [f"person-{number:05}" for number in range(len(table))])
held_out = np.arange(len(table)) % 4 == 3
features = table[[name for name in SCHEMA["columns"] if name not in ("person", "mdvis")]]
counts = table["mdvis"].clip(upper=BOUND)
fitted = make_pipeline(StandardScaler(), PoissonRegressor(alpha=1e-4)).fit(features[~held_out], counts[~held_out])
deviance = mean_poisson_deviance(counts[held_out], fitted.predict(features[held_out]))
print(f"scikit-learn: mean Poisson deviance {deviance:.2f}")
mean = np.full(held_out.sum(), counts[~held_out].mean())
print(f"the mean: mean Poisson deviance {mean_poisson_deviance(counts[held_out], mean):.2f}")

with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client:
    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    people = client.datasets.upload(table[~held_out], name="years", schema=SCHEMA)
    others = client.datasets.upload(table[held_out], name="other years", schema=SCHEMA)
    model = client.models.create(name="visits", dataset_id=people.id, evaluation_dataset_id=others.id)
    model = client.models.wait(model.id, timeout_seconds=300)
    measured = f"mean Poisson deviance {model.metrics['mean_poisson_deviance']:.2f}"
    print(f"version {model.live_version}: {measured}, {model.objective}")

    request = client.deletion_requests.create(subject_id=PERSON)
    request = client.deletion_requests.wait(request.id, timeout_seconds=300)
    [certificate] = [one for one in client.deletion_requests.certificates(request.id) if one.model_id == model.id]
    verdict = verify(certificate.jws, client.certificates.public_keys())
    left = next(one.epsilon for one in verdict.guarantees if one.notion == "unlearning")
    print(f"{request.status}: epsilon = {left:.3f} of {PERSON} is left, verified")

    record = {"lncoins": 0, "lpi": 6, "fmde": 0, "idp": 0, "physlm": 0, "disea": 8, "hlthg": 0, "hlthf": 0, "hlthp": 0}
    for said, changed in {"in good health": {}, "with a limitation": {"physlm": 1, "disea": 30}}.items():
        [predicted] = client.models.predictions(model.id, records=[record | changed]).predictions
        print(f"{said}: {predicted.value:.1f} visits a year")

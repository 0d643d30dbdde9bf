"""Free text: which language somebody writes, from character n-grams, and a writer who is forgotten.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/text/languages.py

The texts are the names of 1900 pictures in five languages, as they come in the package `emoji`: "face blowing a kiss",
"Kuss zuwerfendes Gesicht". Each is somebody's. Of the n-grams (every 1 to 3 characters in a row, of words in small
letters) nothing but a hash is kept, a public function of the text alone, so that no vocabulary is read from the people.
"""

import csv
import os
import tempfile
from pathlib import Path

import emoji
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from lethe import Client
from lethe.verification import verify

PERSON = "writer-0042"
LANGUAGES = ("de", "en", "fr", "id", "tr")
FEATURES = 512
emoji.config.load_language()


def phrases() -> dict[str, str]:
    """Each name, and the one language that has it. Names of skin tones are left out: they repeat the others."""
    found: dict[str, set[str]] = {}
    for picture, names in emoji.EMOJI_DATA.items():
        if names["status"] == emoji.STATUS["fully_qualified"] and not any("🏻" <= part <= "🏿" for part in picture):
            for language in LANGUAGES:
                found.setdefault(names[language].strip(":").replace("_", " "), set()).add(language)
    return {phrase: of.pop() for phrase, of in sorted(found.items()) if len(of) == 1}


texts = phrases()
written, spoken = np.array(list(texts)), np.array(list(texts.values()))
held_out = np.arange(len(texts)) % 4 == 3
hashed = HashingVectorizer(analyzer="char_wb", ngram_range=(1, 3), n_features=FEATURES).transform(written)
fitted = LogisticRegression(max_iter=200).fit(hashed[~held_out], spoken[~held_out])
print(f"scikit-learn: {fitted.score(hashed[held_out], spoken[held_out]):.1%} right")

SCHEMA = {
    "columns": {
        "writer": {"role": "subject"},
        "text": {"kind": "text", "features": FEATURES, "words": None, "characters": [1, 3]},
        "language": {"role": "label", "values": list(LANGUAGES)},
    }
}


def stored(file: Path, chosen: np.ndarray) -> Path:
    """A csv file of some writers."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        rows = csv.writer(opened)
        rows.writerow(["writer", "text", "language"])
        rows.writerows([f"writer-{one:04}", written[one], spoken[one]] for one in np.flatnonzero(chosen))
    return file


with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client, tempfile.TemporaryDirectory() as folder:
    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    people = client.datasets.upload(stored(Path(folder) / "people.csv", ~held_out), schema=SCHEMA)
    others = client.datasets.upload(stored(Path(folder) / "others.csv", held_out), schema=SCHEMA)
    print("warnings:", people.warnings or "none")
    model = client.models.create(name="languages", dataset_id=people.id, evaluation_dataset_id=others.id)
    model = client.models.wait(model.id, timeout_seconds=300)
    print(f"version {model.live_version}: {model.metrics['accuracy']:.1%} right")

    request = client.deletion_requests.create(subject_id=PERSON)
    request = client.deletion_requests.wait(request.id, timeout_seconds=300)
    [certificate] = client.deletion_requests.certificates(request.id)
    verified = verify(certificate.jws, client.certificates.public_keys())
    unlearning = next(one for one in verified.guarantees if one.notion == "unlearning")
    print(f"{request.status}: epsilon = {unlearning.epsilon:.3f} of {PERSON} is left, verified offline")
    records = [{"text": "a smiling cat"}, {"text": "eine lächelnde Katze"}, {"text": "gülümseyen bir kedi"}]
    for record, predicted in zip(
        records, client.models.predictions(model.id, records=records).predictions, strict=True
    ):
        print(f"{record['text']}: {predicted.label}")

"""A person with unmistakable bytes, the files they are in, and all patterns that identify them."""

import csv
import io
import json
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.vectors import encode_vectors
from lethe.encoding import rows as encoding, rows as weights
from tests.forensics import forms
from tests.forensics.forms import Patterns

NUM_FEATURES = 5
NUM_CLASSES = 7
LABELS = (6, 4, 5, 6, 4, 4, 5, 6)
"""Labels of the person's rows in order; almost no other person has these classes."""
MAX_WEIGHT = 4
COLUMNS = [f"f{number}" for number in range(NUM_FEATURES)]
SCHEMA: dict[str, Any] = {
    "columns": {name: {"kind": "numeric", "min": 0, "max": 100} for name in COLUMNS}
    | {
        "group": {"role": "label", "values": [f"group-{number}" for number in range(NUM_CLASSES)]},
        "importance": {"role": "weight", "max": MAX_WEIGHT},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
CLASSES = json.dumps([f"group-{number}" for number in range(NUM_CLASSES)])
"""Classes that are sent with an npz file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    subject_id: str
    external_id: str
    idempotency_key: str
    file_name: str  # name of the uploaded file
    note: str  # text in a column that is ignored
    metadata: dict[str, str]
    callback_path: str
    extension_reason: str
    explanation: str  # reason why the person is not forgotten, for a second request
    remark: str  # note about the person from one officer to another
    letter_name: str  # name of a file that an officer attaches
    letter: str  # content of that file
    subject_request_id: str  # id of the request at the controller that sends it
    other_id: str  # another id, known to that controller and to the person's agent
    extension: dict[str, str]  # further data from that controller
    agent_request_id: str
    claims: dict[str, str]  # claims about the person by their agent
    second_thoughts: str  # reason why the person withdraws one of the agent's requests
    rows: NDArray[np.float64]  # (8, 5)
    added: NDArray[np.float64]  # (1, 5), which comes later
    weights: NDArray[np.float64]  # (9,), of these rows, the added one last

    def texts(self) -> dict[str, str]:
        """Return all texts written about the person, keyed by name."""
        written = {f"metadata {number}": text for number, text in enumerate(self.metadata.values())}
        written |= {f"claim {name}": text for name, text in self.claims.items()}
        return written | {
            "subject id": self.subject_id,
            "external id": self.external_id,
            "key of metadata": next(iter(self.metadata)),
            "idempotency key": self.idempotency_key,
            "name of the file": self.file_name,
            "ignored column": self.note,
            "callback": self.callback_path,
            "reason of the extension": self.extension_reason,
            "explanation of the rejection": self.explanation,
            "internal note": self.remark,
            "name of an attachment": self.letter_name,
            "attachment": self.letter,
            "subject request id": self.subject_request_id,
            "other id": self.other_id,
            "key of an extension": next(iter(self.extension)),
            "extension": next(iter(self.extension.values())),
            "agent request id": self.agent_request_id,
            "reason of the revocation": self.second_thoughts,
        }

    def patterns(self) -> Patterns:
        """Return all patterns that identify the person."""
        found = forms.of_guess("subject id", self.subject_id)
        for name, text in self.texts().items():
            found |= forms.of_text(name, text)
        return found | self.patterns_of_rows()

    def patterns_of_rows(self) -> Patterns:
        """Return patterns of the person's rows, as uploaded and as encoded."""
        found: Patterns = {}
        for name, rows in {"row": self.rows, "added row": self.added}.items():
            for number, row in enumerate(rows):
                found |= forms.of_numbers(f"{name} {number}", row)
                for column in {0, number % NUM_FEATURES}:
                    found |= forms.of_number(f"{name} {number} column {column}", row[column])
        found |= patterns_of_encoded("of vectors", np.vstack([self.rows, self.added]))
        found |= patterns_of_encoded("of the schema", np.vstack([self.rows, self.added]) / 100)
        for kind in ("<i4", "<i8"):
            found[f"labels, {kind}"] = np.asarray(LABELS, dtype=kind).tobytes()
        for number, (label, weight) in enumerate(zip((*LABELS, 6), self.weights, strict=True)):
            found |= forms.of_number(f"weight {number}", weight)
            found[f"label and weight {number}"] = np.array([label, stored_weights(weight)], dtype="<i4").tobytes()
        factors = weights.as_factors(stored_weights(self.weights[:-1]))
        return found | forms.of_numbers("factors", factors)

    def encoded(self) -> NDArray[np.float32]:
        """Return the person's first rows as they are stored in a dataset with the schema."""
        return encode_vectors(self.rows / 100)


def stored_weights(numbers: "NDArray[np.float64] | float") -> NDArray[np.int32]:
    return weights.Weight(column="importance", bound=MAX_WEIGHT).stored(np.asarray(numbers))


def patterns_of_encoded(name: str, vectors: NDArray[np.float64]) -> Patterns:
    """Return patterns of encoded rows (n, 5) with bias and norm <= 1, as stored and before rounding."""
    found: Patterns = {}
    wide = np.hstack([vectors, np.ones((len(vectors), 1))])
    wide /= np.abs(wide).max(axis=1, keepdims=True)
    wide *= encoding.SHRINK / np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    for number, (stored, exact) in enumerate(zip(encode_vectors(vectors), wide, strict=True)):
        found |= forms.of_numbers(f"encoded row {number} {name}", stored)
        found |= forms.of_numbers(f"exact row {number} {name}", exact)
    return found


def new() -> Person:
    """Return a new person with random names and texts."""

    def token() -> str:
        return secrets.token_urlsafe(15)

    return Person(
        subject_id=f"Žofie+{token()}&{token()}@forget.example",
        external_id=f"CRM/{token()} {token()}",
        idempotency_key=f"once-{token()}",
        file_name=f"export of {token()}",
        note=f"allergic to {token()}, {token()}",
        metadata={f"ticket {token()}": f'"{token()}" \\ Łódź {token()}', "mail": f"{token()}\n{token()} é {token()}"},
        callback_path=f"/hook/{token()}?token={token()}",
        extension_reason=f"She said: {token()}, and {token()}.",
        remark=f'Called: "{token()}, {token()}", é 😀\n{token()}',
        letter_name=f"Žofie {token()} {token()} é.txt",
        letter=f"I, {token()}, ask é 😀 {token()}\n{token()}",
        explanation=f"Her claim {token()} is before the court of {token()}.",
        subject_request_id=str(uuid.uuid4()),
        other_id=f'"{token()}" \\ {token()}/é 😀 {token()}',
        extension={f"né {token()}": f'{token()} "{token()}" 😀 {token()}'},
        agent_request_id=f"{token()} / {token()} 😀 {token()}",
        claims={"phone_number": f'+420 "{token()}" é {token()}', "name": f"Žofie {token()}\n😀 {token()}"},
        second_thoughts=f'She: "{token()}, {token()}", é 😀 {token()}',
        rows=_numbers(len(LABELS)),
        added=_numbers(1),
        weights=_numbers(len(LABELS) + 1)[:, 0] / 30,
    )


def _numbers(count: int) -> NDArray[np.float64]:
    """Return random numbers between 10 and 90 that use all 53 bits of a float64."""
    return np.random.default_rng(secrets.randbits(128)).uniform(10, 90, size=(count, NUM_FEATURES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table for an upload."""

    rows: NDArray[np.float64]  # (n, 5)
    labels: NDArray[np.int64]  # (n,)
    weights: NDArray[np.float64]  # (n,), which vectors have not
    subjects: Sequence[str]
    notes: Sequence[str]

    def csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([*COLUMNS, "importance", "group", "person", "note"])
        numbers = np.column_stack([self.rows, self.weights])
        for row, label, subject, note in zip(numbers, self.labels, self.subjects, self.notes, strict=True):
            writer.writerow([*map(repr, map(float, row)), f"group-{label}", subject, note])
        return text.getvalue().encode()

    def parquet(self, compression: str = "zstd") -> bytes:
        columns = {name: pa.array(self.rows[:, number]) for number, name in enumerate(COLUMNS)}
        columns["importance"] = pa.array(self.weights)
        texts = {"group": [f"group-{label}" for label in self.labels], "person": self.subjects, "note": self.notes}
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns | texts), buffer, compression=compression)
        return buffer.getvalue()

    def npz(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, x=self.rows, y=self.labels, subject=np.array(self.subjects))
        return buffer.getvalue()


def among_others(person: Person, *, others: int = 300) -> Table:
    """Return a table with the person in the middle of other people, who have one row each."""
    generator = np.random.default_rng(7)
    half = others // 2
    labels = generator.integers(0, 4, size=others)
    labels[:NUM_CLASSES] = np.arange(NUM_CLASSES)
    return Table(
        rows=np.insert(generator.uniform(0, 100, size=(others, NUM_FEATURES)), half, person.rows, axis=0),
        labels=np.insert(labels, half, LABELS),
        weights=np.insert(np.ones(others), half, person.weights[:-1]),
        subjects=[*(f"p{n}" for n in range(half)), *[person.subject_id] * 8, *(f"p{n}" for n in range(half, others))],
        notes=[*["-"] * half, *[person.note] * 8, *["-"] * (others - half)],
    )


def alone(person: Person) -> Table:
    """Return a table with the one row of the person that is added later."""
    return Table(
        rows=person.added,
        labels=np.array([6]),
        weights=person.weights[-1:],
        subjects=[person.subject_id],
        notes=[person.note],
    )


def schema() -> str:
    return json.dumps(SCHEMA)

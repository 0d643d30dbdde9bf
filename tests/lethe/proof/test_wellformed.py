"""Ambiguous JSON and malformed statements that nothing was held are refused with a specific error."""

import copy
import json
from typing import Any

import pytest

from lethe.proof import absence, signed, wellformed
from lethe.proof.errors import PreconditionError
from tests.lethe.proof.test_certificate import evidence, statement
from tests.tables import each

HEADER = {"alg": "Ed25519", "typ": "lethe-certificate+jws", "kid": "k"}


def nothing_held() -> dict[str, Any]:
    return absence.statement(
        request={"id": "dr_1", "submitted_at": "2025-05-05T11:00:00+00:00"},
        looked_at="2025-05-05T11:00:00.123456+00:00",
        identity_rule="exact",
        dataset_ids=["ds_2", "ds_1"],
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": 1, "a": 1}', "keys_unique"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "keys_unique"),
        ('[{"a": 1, "a": 2}]', "keys_unique"),
        ('{"a": NaN}', "numbers_finite"),
        ('{"a": -Infinity}', "numbers_finite"),
    ],
)
def test_ambiguous_json_is_refused(text: str, named: str) -> None:
    """JSON is refused with a specific error if it repeats a key at any depth or contains an invalid number."""
    with pytest.raises(PreconditionError, match=named):
        wellformed.read(text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_encodings_other_than_utf8_are_refused(encoding: str) -> None:
    """A statement must be UTF-8 without a byte order mark, because a parser that guesses the encoding could read
    different text."""
    text = json.dumps({"place": "K\u00f6ln"}, ensure_ascii=False)
    assert wellformed.read(text.encode()) == {"place": "K\u00f6ln"}
    with pytest.raises(ValueError):
        wellformed.read(text.encode(encoding))


def test_certificates_and_absences_are_parsed() -> None:
    """Parsing a certificate returns its guarantees. A statement that nothing was held has none."""
    assert signed.read(json.dumps(statement()), header=HEADER).guarantees == evidence().guarantees()
    said = signed.read(json.dumps(nothing_held()).encode(), header=HEADER)
    assert (said.statement, said.guarantees) == (nothing_held(), [])


@pytest.mark.parametrize("header", [{}, HEADER | {"jku": "https://elsewhere"}, {"alg": "Ed25519", "typ": "x"}])
def test_a_malformed_header_is_refused(header: dict[str, str]) -> None:
    """A protected header is refused unless it consists of exactly the algorithm, the type and the key."""
    with pytest.raises(PreconditionError, match="header_of_format"):
        signed.read(json.dumps(nothing_held()), header=header)


def test_a_duplicated_key_of_a_certificate_is_refused() -> None:
    """A certificate that states its version twice is refused, even if both values are equal."""
    text = json.dumps(statement()).replace('"version": 4', '"version": 4, "version": 4')
    with pytest.raises(PreconditionError, match="keys_unique"):
        signed.read(text, header=HEADER)


@each(
    ("path", "value", "named"),
    [
        ("format", "lethe-absence/9", "format_known"),
        ("request/id", "mdl_1", "request.id"),
        ("request/submitted_at", "", "request.submitted_at"),
        ("request/records", 1, "fields of request"),
        ("looked/at", "2025-05-05", "looked.at"),
        ("looked/identity_rule", " ", "looked.identity_rule"),
        ("looked/records", 1, "looked.records"),
        ("looked/records", False, "looked.records"),
        ("datasets", ["ds_2", "ds_1"], "every dataset once"),
        ("datasets", ["ds_1", "ds_1"], "every dataset once"),
        ("datasets", ["mdl_1"], "datasets"),
        ("datasets", [["ds_1"]], "datasets"),
        ("datasets", None, "datasets"),
        ("limits", [], "limits_of_format"),
        ("note", "and more", "the parts"),
    ],
)
def test_an_altered_statement_of_absence_is_refused(path: str, value: Any, named: str) -> None:
    """A statement that nothing was held is refused if any part is altered, added or malformed, and the message names
    the part."""
    document = copy.deepcopy(nothing_held())
    *parents, last = path.split("/")
    place: Any = document
    for key in parents:
        place = place[key]
    place[last] = value
    with pytest.raises(PreconditionError) as refused:
        signed.read(json.dumps(document), header=HEADER)
    assert named in str(refused.value)

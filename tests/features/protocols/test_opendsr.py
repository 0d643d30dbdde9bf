"""The messages of OpenDSR, and deletion requests in its terms."""

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from app.deletion.status import OPEN
from app.features.protocols import opendsr
from app.keys import Keys
from lethe.contract.problems import InputInvalid
from lethe.contract.sets import RequestStatus
from tests.tables import each

DOMAIN = "privacy.example.com"
ASKED: dict[str, Any] = {
    "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
    "regulation": "gdpr",
    "subject_request_type": "erasure",
    "submitted_time": "2026-10-02T15:00:00Z",
    "subject_identities": [
        {"identity_type": "controller_customer_id", "identity_format": "raw", "identity_value": "p1"}
    ],
}


def read(**changed: Any) -> opendsr.SubjectRequest:
    body = {name: value for name, value in (ASKED | changed).items() if value is not None}
    return opendsr.read(json.dumps(body).encode(), identity_types=["controller_customer_id"], domain=DOMAIN)


def identity(**changed: Any) -> dict[str, Any]:
    [usual] = ASKED["subject_identities"]
    return dict(usual) | changed


def test_a_request_is_read() -> None:
    """All fields of a controller's request are parsed."""
    request = read(status_callback_urls=["https://controller.example.com/c"], api_version="2.0")
    assert request.subject_request_id == ASKED["subject_request_id"]
    assert request.submitted_time == datetime.datetime(2026, 10, 2, 15, tzinfo=datetime.UTC)
    assert request.status_callback_urls == ["https://controller.example.com/c"]


@each(
    ("changed", "path"),
    [
        ({"subject_request_id": "A7551968-D5D6-44B2-9831-815AC9017798"}, "subject_request_id"),
        ({"subject_request_id": "a7551968-d5d6-14b2-9831-815ac9017798"}, "subject_request_id"),
        ({"subject_request_id": None}, "subject_request_id"),
        ({"regulation": None}, "regulation"),
        ({"regulation": "lgpd"}, "regulation"),
        ({"subject_request_type": "access"}, "subject_request_type"),
        ({"subject_request_type": "portability"}, "subject_request_type"),
        ({"submitted_time": "2026-10-02T15:00:00"}, "submitted_time"),
        ({"submitted_time": 1790953200}, "submitted_time"),
        ({"submitted_time": "0001-01-01T00:00:00+14:00"}, "submitted_time"),
        ({"submitted_time": "9999-12-31T23:59:59-14:00"}, "submitted_time"),
        ({"subject_identities": []}, "subject_identities"),
        ({"subject_identities": None}, "subject_identities"),
        ({"subject_identities": [identity(identity_format="md5")]}, "subject_identities.0"),
        ({"subject_identities": [identity(identity_format="sha1")]}, "subject_identities.0"),
        (
            {"subject_identities": [identity(identity_format="sha256", identity_value="p1")]},
            "subject_identities.0.sha256.identity_value",
        ),
        ({"subject_identities": [identity(identity_type="email")]}, "subject_identities.0.identity_type"),
        ({"subject_identities": [identity(identity_type="shoe_size")]}, "subject_identities.0.raw.identity_type"),
        ({"subject_identities": [identity(identity_value="")]}, "subject_identities.0.raw.identity_value"),
        ({"api_version": "1.0"}, "api_version"),
        ({"extensions": {DOMAIN: {"more": ["p2"]}}}, "extensions"),
    ],
)
def test_the_error_names_the_unsupported_field(changed: dict[str, Any], path: str) -> None:
    """An unsupported request is refused as a whole. The error names the field and quotes no value."""
    with pytest.raises(InputInvalid) as refused:
        read(**changed)
    assert [fault.path for fault in refused.value.errors] == [path]
    assert "p1" not in str([fault.message for fault in refused.value.errors])


def test_extensions_for_other_processors_are_ignored() -> None:
    """Extensions addressed to other processors are ignored."""
    assert read(extensions={"other.example.com": {"property_id": "1"}}).regulation == "gdpr"


def test_a_hashed_identity_equals_the_raw_one(tmp_path: Path) -> None:
    """A SHA-256 identity, in upper or lower case, refers to the same person as the raw identity. If both are sent, only
    one request is created."""
    hashed = hashlib.sha256(b"p1").hexdigest()
    request = read(
        subject_identities=[
            identity(),
            identity(identity_format="sha256", identity_value=hashed),
            identity(identity_format="sha256", identity_value=hashed.upper()),
            identity(identity_value="p2"),
        ]
    )
    keys = Keys(tmp_path).create()
    assert opendsr.subject_kinds(request, keys=keys, tenant_id="ten_1", rule="text", of_email=None) == {
        keys.subject_ref("ten_1", "p1"): None,
        keys.subject_ref("ten_1", "p2"): None,
    }


@given(st.lists(st.sampled_from(RequestStatus), min_size=1))
def test_the_status_combines_all_identities(statuses: list[RequestStatus]) -> None:
    """A request about several identities is pending only while none of its parts has started. It is completed once all
    parts are completed, and has ended once all parts have ended."""
    together = opendsr.together(statuses)
    assert (together is opendsr.OpenDsrStatus.COMPLETED) == (set(statuses) == {RequestStatus.COMPLETED})
    assert (together in (opendsr.OpenDsrStatus.COMPLETED, opendsr.OpenDsrStatus.CANCELLED)) == (
        not set(statuses) & OPEN
    )
    if together is opendsr.OpenDsrStatus.PENDING:
        assert not set(statuses) & {RequestStatus.RUNNING, RequestStatus.COMPLETED}


def test_times_are_rfc_3339_in_utc() -> None:
    """Times in any time zone are formatted in UTC."""
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert opendsr.rfc3339(datetime.datetime(2026, 10, 2, 17, 0, 0, 5, tzinfo=zone)) == "2026-10-02T15:00:00Z"

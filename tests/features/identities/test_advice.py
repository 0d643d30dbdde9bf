"""Warnings about subject ids that requests may not find."""

from collections.abc import Callable

import httpx
import pytest
from fastapi.testclient import TestClient

from lethe.features.identities.contract import ADDRESSES, ROUNDED

Upload = Callable[..., httpx.Response]
Npz = Callable[..., bytes]
_MAILS = [f"p{row}@example.org" for row in range(11)]
_NAMES = [f"p{row}" for row in range(9)]


def _warnings(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 201, answer.text
    warnings: list[str] = answer.json()["warnings"]
    assert not any("p1" in warning for warning in warnings)
    return warnings


@pytest.mark.parametrize("rule", ["text", "exact", "email_domain", "email", "caseless"])
def test_addresses_cause_a_warning_under_case_sensitive_rules(
    gateway: TestClient, upload: Upload, npz_of: Npz, rule: str
) -> None:
    """If the subject ids of an upload mostly look like e-mail addresses and the tenant's rule keeps case and spelling,
    the upload returns a warning."""
    assert gateway.patch("/v1/tenant", json={"policy": {"subject_rule": rule}}).is_success
    expected = [ADDRESSES] if rule in ("text", "exact") else []
    assert _warnings(upload(npz_of(subject=_MAILS + _NAMES))) == expected


def test_addresses_of_the_kind_email_cause_no_warning(upload: Upload, npz_of: Npz) -> None:
    """Subject ids of the kind email cause no warning, because they have their own normal form. Subject ids of the kind
    customer_id follow the tenant's rule, as if no kind had been given."""
    content = npz_of(subject=_MAILS + [f"q{row}@example.org" for row in range(9)])
    assert _warnings(upload(content, subject_kind="email")) == []
    assert _warnings(upload(content, subject_kind="customer_id")) == [ADDRESSES]


def test_few_addresses_cause_no_warning(upload: Upload, npz_of: Npz) -> None:
    """A few addresses among other ids cause no warning, and neither do names that contain an @ but are not
    addresses."""
    assert _warnings(upload(npz_of(subject=_MAILS[:10] + [f"p{row}" for row in range(10)]))) == []
    assert _warnings(upload(npz_of(subject=[f"@p{row}" for row in range(20)]))) == []


def test_rounded_numbers_cause_a_warning(upload: Upload, npz_of: Npz) -> None:
    """Long numbers that mostly end in zeros after the 15th digit cause a warning. Other long numbers do not."""
    rounded = [f"{486_000_000_000_000 + row}000" for row in range(20)]
    assert _warnings(upload(npz_of(subject=rounded))) == [ROUNDED]
    assert _warnings(upload(npz_of(subject=[f"{486_000_000_000_000_000 + row}" for row in range(20)]))) == []
    assert _warnings(upload(npz_of(subject=[f"{row + 1}000" for row in range(20)]))) == []

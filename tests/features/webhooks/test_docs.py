"""docs/webhooks.md does what it states."""

import datetime
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.features.webhooks import dispatcher
from lethe.features.webhooks import signatures as signature
from lethe.features.webhooks.contract import WebhookEvent

PAGE = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
SECRET = signature.secret_from(bytes(range(32)))
BODY = b'{"type": "deletion_request.completed"}'


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert isinstance(found, str)
    return found


def test_python_example_verifies_a_call() -> None:
    """The documented Python code returns the id of a correctly signed call, and raises an error if the body has been
    altered."""
    headers = signature.sign(BODY, message_id="whd_1", sent_at=datetime.datetime.now(datetime.UTC), secrets=[SECRET])
    names: dict[str, Any] = {"secret": SECRET, "headers": headers, "body": BODY}
    exec(block("python"), names)
    assert names["delivery_id"] == "whd_1"
    with pytest.raises(signature.SignatureWrong):
        exec(block("python"), names | {"body": BODY + b" "})


def test_shell_example_computes_the_signature(tmp_path: Path) -> None:
    """The documented shell commands compute the signature that the header contains."""
    headers = signature.sign(BODY, message_id="whd_1", sent_at=datetime.datetime.now(datetime.UTC), secrets=[SECRET])
    (tmp_path / "body.json").write_bytes(BODY)
    given = {"secret": SECRET, "webhook_id": "whd_1", "webhook_timestamp": headers["webhook-timestamp"]}
    made = subprocess.run(
        ["sh", "-ec", block("sh")], cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, check=True
    )
    assert made.stdout == headers["webhook-signature"]


def test_the_page_names_every_event_and_pause() -> None:
    """The documentation lists all events, and the delays that it states between attempts match the dispatcher's."""
    for event in WebhookEvent:
        assert event in PAGE or f"`.{event.partition('.')[2]}`" in PAGE
    units = {"s": 1, "min": 60, "h": 3600}
    [text] = re.findall(r"tried again after about (.*?), each", PAGE)
    pauses = [int(number) * units[unit] for number, unit in re.findall(r"(\d+) (s|min|h)", text)]
    assert pauses == [pause.total_seconds() for pause in dispatcher._PAUSES]

"""The asynchronous client writes files like the blocking one."""

from pathlib import Path

import pytest

from lethe import AsyncClient
from lethe.errors import Unreachable
from tests.lethe.client.test_async_client import told
from tests.lethe.client.test_http import problem
from tests.lethe.scripted import Reply, Script


def test_a_long_answer_that_breaks_off(script: Script, tmp_path: Path) -> None:
    """A file is complete or unchanged, and an answer that breaks off is not requested again."""
    file = tmp_path / "requests.csv"
    file.write_text("before")

    async def story(client: AsyncClient) -> None:
        script.says(problem(503), Reply(body=b"id\r\n" * 50_000, cut=True))
        with pytest.raises(Unreachable):
            await client.deletion_requests.export(file)
        assert len(script.calls) == 2

    told(script.url, "k", story)
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["requests.csv"]

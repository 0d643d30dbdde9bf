"""The tombstones are verified before a restore needs them: any change to the file is found and reported."""

import dataclasses
import datetime
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.errors import TombstonesDamaged
from app.features.archives import service
from app.features.monitoring.metrics import Metrics
from app.installations import Installation
from app.journal import tombstones, verification
from app.journal.journal import NOTHING
from app.journal.verification import BackupState, BackupVerdict
from app.main import create_app
from tests.faults.processes import wait_until
from tests.features.archives.conftest import quietly
from worker import runner

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def apart(
    installation: Installation,
    tmp_path: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> Installation:
    """Return an installation in which two people were forgotten, with a tombstone file that the gateway does not
    use."""
    new_model(new_dataset()["id"])
    work()
    for person in ("p1", "p2"):
        forget(person)
    work()
    (tmp_path / "apart").mkdir()
    elsewhere = installation.settings.model_copy(update={"tombstones": tmp_path / "apart" / "tombstones.jsonl"})
    found = dataclasses.replace(installation, settings=elsewhere)
    tombstones.record(found)
    return found


@pytest.fixture
def file(apart: Installation) -> Path:
    return apart.settings.resolved_tombstones()


def verdict_of(installation: Installation) -> BackupVerdict:
    found = verification.last_verdict(installation.settings)
    assert found is not None
    return found


def test_an_intact_file_verifies(apart: Installation, file: Path) -> None:
    """An intact tombstone file verifies to its last byte. A missing file verifies as empty."""
    found = verification.verify(apart)
    assert (found.found, found.fault) == (BackupState.WHOLE, None)
    assert found.extent.bytes == file.stat().st_size
    assert found.extent.lines == len(file.read_bytes().splitlines())
    assert verdict_of(apart) == found
    file.unlink()
    assert verification.verify(apart).extent == NOTHING


def test_every_flipped_bit_is_found(apart: Installation, file: Path) -> None:
    """Verification finds a flipped bit in any byte of the tombstone file and names its position."""
    whole = file.read_bytes()
    journal = tombstones.journal(apart)
    places = {0, len(whole) - 1, *(end - 1 for end in range(1, len(whole)) if whole[end : end + 1] == b"\n")}
    places |= {end for end in range(len(whole)) if whole[end : end + 1] == b"\n"}
    places |= set(random.Random(1).sample(range(len(whole)), 300))
    for place in sorted(places):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        file.write_bytes(flipped)
        with pytest.raises(TombstonesDamaged) as found:
            journal.extent()
        assert "byte" in found.value.detail
    file.write_bytes(whole)
    assert journal.extent().bytes == len(whole)


def test_moved_lines_are_found(apart: Installation, file: Path) -> None:
    """Verification detects duplicated, swapped, removed and moved lines. No run or backup starts while such a change is
    present."""
    lines = file.read_bytes().splitlines(keepends=True)
    for changed in (
        [*lines[:3], lines[2], *lines[3:]],
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines[:2], *lines[3:]],
        lines[1:],
        [*lines, lines[0]],
    ):
        file.write_bytes(b"".join(changed))
        assert verification.verify(apart).found is BackupState.DAMAGED
        with pytest.raises(TombstonesDamaged):
            verification.require_whole(apart)
        with pytest.raises(TombstonesDamaged):
            service.back_up(apart, file.parent / "archive", key_file=file.parent / "key", progress=quietly)
        assert not (file.parent / "archive").exists()
    file.write_bytes(b"".join(lines))
    verification.require_whole(apart)
    assert verdict_of(apart).found is BackupState.WHOLE


def test_a_truncated_tail_is_rewritten(apart: Installation, file: Path) -> None:
    """If the tombstone file is truncated at any point, the missing end is rewritten from the requests in the
    database."""
    before = [line.of for line in tombstones.journal(apart).lines() if line.request]
    size = file.stat().st_size
    for cut in (1, 77, size // 2, size - 1, size):
        file.write_bytes(file.read_bytes()[: size - cut])
        tombstones.record(apart)
        assert [line.of for line in tombstones.journal(apart).lines() if line.request] == before
        verification.require_whole(apart, now=True)


def test_only_new_lines_are_verified(apart: Installation, file: Path, forget: Make) -> None:
    """Between two full verifications of the tombstone file, only new lines are read. If the file is replaced, it is
    read completely."""
    first = verification.verify(apart)
    forget("p3")
    tombstones.record(apart)
    verification.verify(apart, full=False)
    second = verdict_of(apart)
    assert second.extent.lines > first.extent.lines
    assert second.whole_at == first.whole_at
    whole = bytearray(file.read_bytes())
    whole[10] ^= 1
    file.write_bytes(whole)
    verification.verify(apart, full=False)
    assert verdict_of(apart).found is BackupState.WHOLE
    file.rename(file.with_name("kept"))
    file.write_bytes(whole)
    verification.verify(apart, full=False)
    assert verdict_of(apart).found is BackupState.DAMAGED


def test_the_whole_file_is_verified_every_hour(apart: Installation, file: Path) -> None:
    """A changed byte in the middle of the file is detected within an hour, even if nothing else in the file changes."""
    verification.verify(apart)
    whole = bytearray(file.read_bytes())
    whole[10] ^= 1
    with file.open("r+b") as opened:
        opened.write(whole)
    note = verification.verdict_file(apart.settings)
    said = json.loads(note.read_text())
    an_hour_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1, seconds=1)
    note.write_text(json.dumps(said | {"whole_at": an_hour_ago.isoformat()}))
    verification.verify(apart, full=False)
    assert verdict_of(apart).found is BackupState.DAMAGED


def test_a_replaced_file_is_verified_before_a_run(apart: Installation, file: Path) -> None:
    """Before a run erases rows, an earlier verdict on the tombstone file is accepted only if the file has not been
    replaced since."""
    verification.verify(apart)
    verification.require_whole(apart)
    whole = bytearray(file.read_bytes())
    whole[10] ^= 1
    file.rename(file.with_name("kept"))
    file.write_bytes(whole)
    with pytest.raises(TombstonesDamaged):
        verification.require_whole(apart)


def test_damage_is_reported(apart: Installation, file: Path, admin_key: str, capfd: pytest.CaptureFixture[str]) -> None:
    """From the gateway's startup until the tombstone file is intact again, readiness, metrics and the gateway's log
    report that the file is damaged."""
    headers = {"Authorization": f"Bearer {admin_key}"}
    whole = file.read_bytes()
    file.write_bytes(whole[:10] + b"x" + whole[11:])
    with TestClient(create_app(apart.settings), headers=headers) as gateway:
        wait_until(lambda: gateway.get("/readyz").json()["tombstones"] == "damaged")
        assert gateway.get("/readyz").status_code == 200
        assert "lethe_tombstones_damaged 1.0" in Metrics(apart).exposition().decode()
    assert "backup.tombstones_damaged" in "".join(capfd.readouterr())
    file.write_bytes(whole)
    with TestClient(create_app(apart.settings), headers=headers) as gateway:
        wait_until(lambda: gateway.get("/readyz").json()["tombstones"] == "whole")
        assert "lethe_tombstones_damaged 0.0" in Metrics(apart).exposition().decode()


def test_damage_stops_erasures(
    apart: Installation,
    file: Path,
    forget: Make,
    runs_of: Callable[[], list[tuple[str, str | None]]],
) -> None:
    """A run that begins after damage was found changes nothing, and the work continues once the file is restored."""
    whole = file.read_bytes()
    file.write_bytes(whole[:10] + b"x" + whole[11:])
    verification.verify(apart)
    forget("p5")
    assert runner.run_next(apart, worker="test")
    assert runs_of()[-1] == ("failed", "tombstones_damaged")
    file.write_bytes(whole)
    tombstones.record(apart)
    wait_until(lambda: runner.run_next(apart, worker="test"))
    assert runs_of()[-1] == ("published", None)


@pytest.mark.parametrize("kept", ["", "{", '{"at": 1}', "[]"])
def test_an_unreadable_verdict_is_ignored(apart: Installation, file: Path, kept: str) -> None:
    """If the verdict file is empty, truncated or malformed, it is ignored, and the whole tombstone file is verified
    again."""
    verification.verdict_file(apart.settings).write_text(kept)
    assert verification.last_verdict(apart.settings) is None
    verification.verify(apart, full=False)
    assert verdict_of(apart).extent.bytes == file.stat().st_size


def test_a_partial_verdict_is_overwritten(apart: Installation, file: Path) -> None:
    """The next verdict overwrites a verdict file that was only partly written, and no partial file remains."""
    [half_written] = verification.files(apart.settings) - {verification.verdict_file(apart.settings)}
    half_written.write_text('{"at"')
    verification.verify(apart)
    assert {path.name for path in file.parent.iterdir()} == {file.name, verification.verdict_file(apart.settings).name}

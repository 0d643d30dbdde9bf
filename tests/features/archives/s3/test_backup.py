"""Backups of an installation whose rows are in a bucket."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app import installations
from app.config import Settings
from app.features.archives import restoring, service
from app.installations import Installation
from app.journal import tombstones
from tests.faults.checks import assert_all_done_once
from tests.features.archives.conftest import quietly
from tests.features.buckets.server import Server
from tests.stored import rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]


def test_rows_are_restored_from_one_bucket_into_another(
    s3: Server,
    installation: Installation,
    tmp_path: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """Rows in one bucket are restored into another bucket, except for the rows of people who were forgotten since the
    backup."""
    dataset = new_dataset(rows=5000)
    slots = slots_of(installation, dataset["id"], "p4500")
    new_model(dataset["id"])
    work()
    archive, key_file = tmp_path / "archive", tmp_path / "key"
    service.back_up(installation, archive, key_file=key_file, progress=quietly)
    forget("p4500")
    work()
    tombstones.record(installation)
    other = Settings(data_dir=tmp_path / "other", store_url=f"s3://{s3.new_bucket()}/lethe")
    own = installation.settings.resolved_tombstones()
    restoring.restore(other, archive, key_file=key_file, remembered_in=own, progress=quietly)
    with installations.opened(other) as again:
        assert not rows_of(again, dataset["id"]).features[slots].any()
        while runner.run_next(again, worker="test"):
            pass
        assert_all_done_once(again)

"""Rows in a bucket: two hosts, copies, and crashes between any two steps."""

import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.errors import DatasetDamaged, DatasetUnknown
from app.keys import KeyEncryptionFile
from app.registry.ingest import Batch
from app.registry.mirror import MirroredRowStore
from app.registry.rows import BLOCK_ROWS
from app.registry.s3 import S3Store
from app.registry.sealing import Sealed
from tests.s3.server import Server

KEY = bytes(range(32))
NUM_SLOTS = 2 * BLOCK_ROWS + 7
TOUCHED = [1, BLOCK_ROWS]


def whole() -> Batch:
    random = np.random.default_rng(0)
    features = random.uniform(0.1, 0.5, (NUM_SLOTS, 3)).astype(np.float32)
    return Batch(features=features, labels=np.ones(NUM_SLOTS, dtype=np.int32), subjects=[None] * NUM_SLOTS)


@pytest.fixture
def host(bucket: str, tmp_path: Path, key_encryption: KeyEncryptionFile) -> Callable[[str], MirroredRowStore]:
    """The store as a host of this name opens it."""

    def opened(name: str) -> MirroredRowStore:
        objects = S3Store(f"s3://{bucket}", "blocks")
        sealed = Sealed(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
        return MirroredRowStore(tmp_path / name, KEY, objects=objects, sealed=sealed, locks=tmp_path / "locks")

    return opened


@pytest.fixture
def one(host: Callable[[str], MirroredRowStore]) -> MirroredRowStore:
    store = host("one")
    with store.writing("ds_1") as writer:
        writer.append(whole())
    return store


@pytest.fixture
def two(host: Callable[[str], MirroredRowStore], one: MirroredRowStore) -> MirroredRowStore:
    """Another host, which has a copy too."""
    store = host("two")
    store.open("ds_1")
    return store


def row(slot: int) -> bytes:
    return whole().features[slot].tobytes()


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_the_bucket_has_no_row_in_the_clear(s3: Server, bucket: str, one: MirroredRowStore) -> None:
    """Of rows there is ciphertext in the bucket, an object for each 4096, beside a manifest without any content."""
    contents = s3.contents(bucket)
    assert sorted(re.sub("[0-9a-f]{64}", "#", name) for name in contents) == [
        "blocks/ds_1/00000000-#.sealed",
        "blocks/ds_1/00000001-#.sealed",
        "blocks/ds_1/00000002-#.sealed",
        "blocks/ds_1/manifest",
    ]
    assert not any(row(slot) in content for content in contents.values() for slot in range(0, NUM_SLOTS, 500))


def test_only_touched_blocks_are_rewritten(s3: Server, bucket: str, one: MirroredRowStore) -> None:
    """A deletion replaces the objects of the blocks it touches, and leaves neither object nor key of those before."""
    before = s3.contents(bucket)
    one.make_null("ds_1", TOUCHED)
    after = s3.contents(bucket)
    kept = {name for name in before if before[name] == after.get(name)}
    assert len(before) == len(after) == 4
    assert [name.split("-")[0] for name in kept] == ["blocks/ds_1/00000002"]


def test_copies_of_old_blocks_do_not_bring_anybody_back(
    s3: Server, bucket: str, one: MirroredRowStore, host: Callable[[str], MirroredRowStore]
) -> None:
    """Where the whole bucket is restored to what it was before a deletion, nothing is learned from it."""
    backup = s3.contents(bucket)
    one.make_null("ds_1", TOUCHED)
    for name, content in backup.items():
        s3.write(bucket, name, content)
    with pytest.raises(DatasetDamaged):
        host("new").open("ds_1")


def test_a_stale_copy_is_not_used(one: MirroredRowStore, two: MirroredRowStore, tmp_path: Path) -> None:
    """What one host made null is null for the other at its next use, on its disk too."""
    mapped = two.open("ds_1")
    one.make_null("ds_1", TOUCHED)
    assert row(TOUCHED[0]) in on_disk(tmp_path / "two")
    two.verify("ds_1", digest=one.digest("ds_1"))
    assert not two.open("ds_1").features[TOUCHED].any()
    assert not mapped.features[TOUCHED].any()
    assert row(TOUCHED[0]) not in on_disk(tmp_path / "two")
    assert row(0) in on_disk(tmp_path / "two")


def test_a_sweep_forgets_on_hosts_that_have_nothing_to_do(
    one: MirroredRowStore, two: MirroredRowStore, tmp_path: Path
) -> None:
    """A host's sweep overwrites in its copies whoever was forgotten elsewhere, and wipes copies of deleted datasets."""
    one.make_null("ds_1", TOUCHED)
    two.sweep_temporary()
    assert row(TOUCHED[0]) not in on_disk(tmp_path / "two")
    one.delete("ds_1")
    two.sweep_temporary()
    assert list((tmp_path / "two").iterdir()) == []


@pytest.mark.parametrize("name", ["features.f32", "labels.i32", "block_digests.bin", "shape.json"])
@pytest.mark.parametrize("damage", ["changed", "gone", "short"])
def test_a_damaged_copy_is_replaced(one: MirroredRowStore, tmp_path: Path, name: str, damage: str) -> None:
    """A run that verifies its rows first gets the ones on record, whatever has become of the copy."""
    digest, file = one.digest("ds_1"), tmp_path / "one" / "ds_1" / name
    match damage:
        case "changed":
            file.write_bytes(bytes(file.stat().st_size))
        case "gone":
            file.unlink()
        case "short":
            os.truncate(file, 3)
    one.verify("ds_1", digest=digest)
    np.testing.assert_array_equal(one.open("ds_1").features, whole().features)


def test_a_deletion_never_makes_damage_the_truth(one: MirroredRowStore, two: MirroredRowStore, tmp_path: Path) -> None:
    """Rows of a touched block that were changed on this host's disk do not reach the bucket."""
    file = tmp_path / "one" / "ds_1" / "features.f32"
    file.write_bytes(bytes(reversed(file.read_bytes())))
    one.make_null("ds_1", TOUCHED)
    expected = whole().features
    expected[TOUCHED] = 0
    np.testing.assert_array_equal(two.open("ds_1").features, expected)


def test_one_host_after_the_other(one: MirroredRowStore, two: MirroredRowStore) -> None:
    """Deletions on several hosts add up, whichever copy was stale."""
    for number, store in enumerate((one, two, one, two)):
        store.make_null("ds_1", [number, BLOCK_ROWS + number])
    for store in (one, two):
        assert np.flatnonzero(~store.open("ds_1").features.any(axis=1)).tolist() == [
            *range(4),
            *range(BLOCK_ROWS, BLOCK_ROWS + 4),
        ]


def test_a_block_that_is_lost_is_refused(s3: Server, bucket: str, one: MirroredRowStore, two: MirroredRowStore) -> None:
    """A host that needs a block which the store has lost says so; one with a sound copy works on."""
    name = next(name for name in s3.contents(bucket) if "00000001" in name)
    s3.client.delete_object(Bucket=bucket, Key=name)
    two.release("ds_1")
    with pytest.raises(DatasetDamaged, match="Block 1"):
        two.open("ds_1")
    one.verify("ds_1", digest=one.digest("ds_1"))


@pytest.mark.parametrize("manifest", [b"", b"{}", b'{"num_slots": 1}', b"[]"])
def test_a_manifest_that_cannot_be_read(s3: Server, bucket: str, one: MirroredRowStore, manifest: bytes) -> None:
    """Rows whose manifest is damaged are refused, and stay."""
    s3.write(bucket, "blocks/ds_1/manifest", manifest)
    with pytest.raises(DatasetDamaged, match="manifest"):
        one.open("ds_1")


def test_half_an_upload_is_swept(one: MirroredRowStore, s3: Server, bucket: str, tmp_path: Path) -> None:
    """What an upload that died has left in the bucket is known by its id, is no dataset, and can be deleted."""
    s3.client.delete_object(Bucket=bucket, Key="blocks/ds_1/manifest")
    assert one.dataset_ids() == {"ds_1"}
    assert one.dataset_ids(older_than=datetime.timedelta(hours=1)) == set()
    with pytest.raises(DatasetUnknown):
        one.open("ds_1")
    one.delete("ds_1")
    assert s3.contents(bucket) == {}
    assert list((tmp_path / "keys").iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from app.keys import KeyEncryptionFile
from app.registry import sealing
from app.registry.mirror import MirroredRowStore
from app.registry.s3 import S3Store
from app.registry.sealing import Sealed
bucket, root, host, calls = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
def dying(call):
    def count(*arguments, **named):
        global calls
        calls -= 1
        if calls < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return count
for name in ("put", "create", "get", "delete", "names"):
    setattr(S3Store, name, dying(getattr(S3Store, name)))
for name in ("wipe_file", "created"):
    setattr(sealing, name, dying(getattr(sealing, name)))
for name in ("pwrite", "fsync"):
    setattr(os, name, dying(getattr(os, name)))
objects = S3Store(f"s3://{bucket}", "blocks")
sealed = Sealed(objects, keys=root / "keys", key_encryption=KeyEncryptionFile(root / "installation" / "kek"))
store = MirroredRowStore(root / host, bytes(range(32)), objects=objects, sealed=sealed, locks=root / "locks")
store.make_null("ds_1", [1, 4096])
"""


@pytest.mark.slow
def test_a_deletion_killed_anywhere_is_completed_by_another_host(
    s3: Server, bucket: str, one: MirroredRowStore, host: Callable[[str], MirroredRowStore], tmp_path: Path
) -> None:
    """Killed with SIGKILL between any two steps, a deletion is completed on either host, and nothing else is left."""
    start = s3.contents(bucket)
    shutil.copytree(tmp_path / "one", tmp_path / "one.start")
    shutil.copytree(tmp_path / "keys", tmp_path / "keys.start")
    expected = whole().features
    expected[TOUCHED] = 0
    killed = 0
    for calls in range(0, 200, 3):
        for name in set(s3.contents(bucket)) - set(start):
            s3.client.delete_object(Bucket=bucket, Key=name)
        for name, content in start.items():
            s3.write(bucket, name, content)
        for name in ("one", "keys"):
            shutil.rmtree(tmp_path / name)
            shutil.copytree(tmp_path / f"{name}.start", tmp_path / name)
        process = subprocess.run(
            [sys.executable, "-c", KILLED, bucket, str(tmp_path), "one", str(calls)],
            check=False,
            capture_output=True,
        )
        assert process.returncode in (0, -signal.SIGKILL), process.stderr
        first, second = [host("one"), host(f"other-{calls}")][:: 1 if calls % 2 else -1]
        second.open("ds_1")  # a copy, of whatever is the truth now
        first.make_null("ds_1", TOUCHED)
        for store in (first, second):
            store.verify("ds_1", digest=first.digest("ds_1"))
            np.testing.assert_array_equal(store.open("ds_1").features, expected)
        assert len(s3.contents(bucket)) == 4
        assert len(list((tmp_path / "keys").iterdir())) == 3
        if process.returncode == 0:
            break
        killed += 1
    assert process.returncode == 0
    assert killed > 10

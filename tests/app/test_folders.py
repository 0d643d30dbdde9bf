"""Folders and keys that the users of a group, but no other users, may access, as with fsGroup in Kubernetes."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import folders, installations
from app.config import Settings
from app.errors import FolderExposed

GROUP = 2000

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="acting as other users takes Linux and root"
)


@contextmanager
def user(uid: int, *groups: int) -> Iterator[None]:
    """Act as an unprivileged user who belongs to the given groups and the user's own group."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def mount(volume: Path) -> None:
    """Give the group access to a volume, as a kubelet does when it mounts the volume for a pod with fsGroup."""
    for path in (volume, *volume.rglob("*")):
        os.chown(path, -1, GROUP)
        path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o660))


def modes(volume: Path) -> dict[Path, int]:
    return {path: path.stat().st_mode & 0o7777 for path in (volume, *volume.rglob("*"))}


@pytest.fixture
def volume() -> Iterator[Path]:
    """Yield a folder whose parent folders every user can enter, unlike those of pytest's `tmp_path`."""
    folder = Path(tempfile.mkdtemp(prefix="lethe-volume-"))
    folder.chmod(0o700)
    yield folder
    shutil.rmtree(folder)


def test_another_user_of_the_group_can_continue(volume: Path) -> None:
    """One user can set up an installation on a volume that belongs to a group, another user of the group can open it,
    and the group keeps its access."""
    settings = Settings(data_dir=volume)
    mount(volume)
    with user(10001, GROUP):
        installations.set_up(settings)
    mount(volume)
    before = modes(volume)
    for uid in (10001, 10002):
        with user(uid, GROUP), installations.opened(settings) as installation, installation.database.writing():
            assert installation.keys.signing_key
        assert {path: mode for path, mode in modes(volume).items() if path in before} == before


@pytest.mark.parametrize(
    ("group", "mode", "is_taken"),
    [(GROUP, 0o440, True), (GROUP, 0o444, False), (GROUP, 0o442, False), (3000, 0o440, False), (3000, 0o400, True)],
)
def test_a_root_owned_key_may_be_readable_by_the_group(volume: Path, group: int, mode: int, is_taken: bool) -> None:
    """A mounted key file owned by root may be readable by one of the service's groups. A file that is readable by other
    users or by another group is refused, and the error states the mode it should have."""
    key = volume / "kek"
    key.touch()
    os.chown(key, 0, group)
    key.chmod(mode)
    volume.chmod(0o755)
    with user(10001, GROUP):
        if is_taken:
            folders.close([], [key])
        else:
            with pytest.raises(FolderExposed, match=f"make it {mode & (0o440 if group == GROUP else 0o400):04o}"):
                folders.close([], [key])
    assert key.stat().st_mode & 0o777 == mode


def test_only_a_setgid_folder_keeps_its_group(volume: Path) -> None:
    """A setgid folder and its files keep the group's access; without setgid, the group loses access. Other users lose
    their access in either case, and the setgid bit stays set."""
    file = volume / "lethe.db"
    file.touch()
    for path in (volume, file):
        os.chown(path, 10001, GROUP)
    for folder_mode, kept in [(0o2777, (0o2770, 0o660)), (0o777, (0o700, 0o600))]:
        volume.chmod(folder_mode)
        file.chmod(0o666)
        with user(10001, GROUP):
            folders.close([volume], [file])
        assert (modes(volume)[volume], modes(volume)[file]) == kept


def test_a_mounted_key_encryption_key_is_closed_to_other_users(volume: Path, settings: Settings) -> None:
    """A key-encryption key in another folder is closed to other users, just like the keys in the data folder."""
    key = volume / "kek"
    shutil.copy(settings.resolved_key_encryption_key_file(), key)
    key.chmod(0o644)
    with installations.opened(settings.model_copy(update={"key_encryption_key_file": key})):
        assert key.stat().st_mode & 0o777 == 0o600

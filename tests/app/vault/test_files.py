"""Files that several workers remove at the same time, as their chores do."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.vault import files

WORKERS = 8


def test_a_file_is_wiped_by_whoever_comes(tmp_path: Path) -> None:
    """Of workers that wipe the same files at the same moment, each finds that they are gone, and none fails."""
    paths = [tmp_path / f"{number}.sealed" for number in range(50)]
    together = threading.Barrier(WORKERS)

    def wipe(_: int) -> list[bool]:
        still = []
        for path in paths:
            together.wait(20)
            files.wipe_file(path)
            still.append(path.exists())
        return still

    for path in paths:
        path.write_bytes(b"secret")
    with ThreadPoolExecutor(WORKERS) as threads:
        assert all(not any(still) for still in threads.map(wipe, range(WORKERS), timeout=240))


def test_a_folder_is_wiped_by_whoever_comes(tmp_path: Path) -> None:
    """Of workers that wipe the same folders at the same moment, each finds that they are gone, and none fails."""
    folders = [tmp_path / f".deleting-{number}" for number in range(50)]
    together = threading.Barrier(WORKERS)

    def wipe(_: int) -> list[bool]:
        still = []
        for folder in folders:
            together.wait(20)
            files.wipe(folder)
            still.append(folder.exists())
        return still

    for folder in folders:
        folder.mkdir()
        for name in ("features", "labels"):
            (folder / name).write_bytes(b"secret")
    with ThreadPoolExecutor(WORKERS) as threads:
        assert all(not any(still) for still in threads.map(wipe, range(WORKERS), timeout=240))

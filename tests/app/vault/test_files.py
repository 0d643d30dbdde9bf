"""Files that several workers remove at the same time in their periodic jobs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.vault import store

WORKERS = 8


def test_concurrent_wipes_succeed(tmp_path: Path) -> None:
    """Workers that wipe the same files at the same moment all succeed, and the files are gone afterwards."""
    paths = [tmp_path / f"{number}.sealed" for number in range(50)]
    together = threading.Barrier(WORKERS)

    def wipe(_: int) -> list[bool]:
        still = []
        for path in paths:
            together.wait(20)
            store.wipe_file(path)
            still.append(path.exists())
        return still

    for path in paths:
        path.write_bytes(b"secret")
    with ThreadPoolExecutor(WORKERS) as threads:
        assert all(not any(still) for still in threads.map(wipe, range(WORKERS), timeout=240))

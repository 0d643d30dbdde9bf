"""Program inside the sandbox that runs the trainer's command and passes on its outputs. It does not import Lethe.

The exit status tells how the command ended. Nothing that the command prints leaves the sandbox, because it might quote
rows: standard output is discarded, and standard error is only searched for one message from the C library.
"""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from typing import Any

OPENED_SOCKET, WROTE_OUTSIDE, FAILED, OUTPUT_INVALID, OUTPUT_TOO_LARGE = 70, 71, 72, 73, 74
_SIGSYS = 31
_READ_ONLY = b"Read-only file system"


def main(order: Any) -> int:
    """Run the order's `command`, and write its regular `files` to the file descriptor `output` as a tar archive."""
    try:
        process = subprocess.Popen(  # noqa: S603  no shell
            order["command"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError:
        return FAILED
    tail, read_only = b"", False
    assert process.stderr is not None
    while chunk := os.read(process.stderr.fileno(), 65536):
        read_only = read_only or _READ_ONLY in tail + chunk
        tail = chunk[-len(_READ_ONLY) :]
    status = process.wait()
    if status in (-_SIGSYS, 128 + _SIGSYS):
        return OPENED_SOCKET
    if status:
        return WROTE_OUTSIDE if read_only else FAILED
    room = order["max_bytes"]
    with open(order["output"], "r+b", buffering=0) as out, tarfile.open(fileobj=out, mode="w") as archive:
        for name in order["files"]:
            if not os.path.lexists(name):
                return OUTPUT_INVALID
            about = os.lstat(name)
            if not stat.S_ISREG(about.st_mode):
                return OUTPUT_INVALID
            room -= about.st_size + 2 * tarfile.BLOCKSIZE
            if room < 0:
                return OUTPUT_TOO_LARGE
            member = tarfile.TarInfo(name)
            with open(name, "rb") as file:
                content = file.read(about.st_size)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

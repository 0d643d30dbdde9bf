"""The process in which a network runs: its results, its limits, and its isolation."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from app.config import Settings
from app.features.networks import service
from lethe.contract.problems import NetworkFailed, NetworkInvalid
from lethe.features.isolation import sandbox
from lethe.features.networks.encoders import child, graph, process
from lethe.features.networks.encoders.limits import Limits
from tests.features.networks import nets
from tests.features.networks.nets import WEIGHTS, node, onnx_file

LIMITS = Limits()
SHAPE = {"input_size": nets.WIDTH, "output_size": nets.OUT}
ROWS = np.random.default_rng(5).normal(size=(70, nets.WIDTH))


def test_a_nondeterministic_network_is_refused() -> None:
    """The examination runs a network twice and compares the outputs. It refuses a network that adds random numbers, and
    a file whose outputs differ from those of the network that is already loaded."""
    drawn = onnx_file([node("MatMul", output="h"), node("RandomNormalLike", "h", "r"), node("Add", "h r")])
    # This network has the same input and output sizes.
    named = graph.parse(nets.linear())
    for content, network in (
        (drawn, child.RunningNetwork(drawn, named)),
        (nets.linear(2.0), child.RunningNetwork(nets.linear(), named)),
    ):
        with pytest.raises(graph.NetworkRefused, match="output changed between two runs"):
            child._examined(content, network)
    assert child._examined(nets.linear(), child.RunningNetwork(nets.linear(), named))["output_size"] == nets.OUT


def test_features_depend_only_on_the_row() -> None:
    """A row has bit-identical features at any position in the upload, and its features match those computed by numpy up
    to rounding. Progress is reported batch by batch."""
    with process.examined(nets.linear(), LIMITS) as encoder:
        found = encoder.encode(ROWS)
        backwards = encoder.encode(ROWS[::-1])[::-1]
        alone = np.concatenate([encoder.encode(row[None]) for row in ROWS])
        told: list[int] = []
        encoder.encode(ROWS, progress=told.append)
    assert told == [32, 64, 70]
    assert np.array_equal(found, backwards)
    assert np.array_equal(found, alone)
    np.testing.assert_allclose(found, np.maximum(ROWS.astype(np.float32) @ WEIGHTS, 0), rtol=1e-5, atol=1e-6)


def test_a_row_does_not_depend_on_another() -> None:
    """Networks see one row at a time. Even if a network uses the largest number in its batch, a large row therefore
    changes only its own features."""
    large = np.full((1, nets.WIDTH), 100.0)
    with process.examined(nets.raised_by_the_largest(), LIMITS) as encoder:
        beside = encoder.encode(np.concatenate([ROWS, large]))
        alone = np.concatenate([encoder.encode(row[None]) for row in ROWS])
        assert np.array_equal(beside[:-1], alone)
        np.testing.assert_allclose(encoder.encode(large), 100 * WEIGHTS.sum(0, keepdims=True) + 98.5, rtol=1e-5)


@pytest.mark.slow
def test_a_restarted_network_computes_identical_results() -> None:
    """A restarted process computes bit-identical results."""
    with process.examined(nets.linear(), LIMITS) as encoder:
        found = encoder.encode(ROWS)
        assert encoder.facts["shut_in"] is True
    with process.started(nets.linear(), **SHAPE, limits=LIMITS) as again:
        assert np.array_equal(again.encode(ROWS), found)
        with pytest.raises(ValueError, match="70, 5"):
            again.encode(ROWS[:, :5])


@pytest.mark.slow
def test_time_and_memory_are_limited() -> None:
    """If a network takes too much time or memory, its process is killed and the error states which limit was
    exceeded."""
    hasty, poor = (Limits(memory_bytes=most, seconds=s) for most, s in ((2**33, 0.01), (2**30, 60.0)))
    with (
        process.started(nets.slow(), **SHAPE, limits=hasty) as encoder,
        pytest.raises(NetworkFailed, match=r"longer than 0\.01 seconds"),
    ):
        encoder.encode(ROWS)
    with (
        process.started(nets.slow(60_000, hidden=True), **SHAPE, limits=poor) as encoder,
        pytest.raises(NetworkFailed, match=r"more memory than 1073741824 bytes"),
    ):
        encoder.encode(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('say({"rows": 3}); time.sleep(60)', "longer than 1 seconds"),
        ('os.write(descriptor, b"\\0"); time.sleep(60)', "longer than 1 seconds"),
        ('os.fork() or time.sleep(60); say({"rows": 3}); time.sleep(60)', "longer than 1 seconds"),
        ('say({"rows": 4})', "another number of features"),
        ('say({"rows": 3}); line.send_bytes(bytes(4 * 3 * 5))', "process ended"),
        ('say({"rows": 3}); line.send_bytes(bytes(4 * 3 * 3))', "another number of features"),
        ('line.send_bytes(b"{")', "process ended"),
        ('line.send_bytes(b"3")', "process ended"),
    ],
)
def test_a_stalled_process_times_out(answer: str, said: str) -> None:
    """Running a network fails if its process stalls in the middle of a response, even if another process keeps the pipe
    open. It also fails if the process returns the wrong number of values."""
    ours, theirs = socket.socketpair()
    program = f"""
import json, os, time
from multiprocessing.connection import Connection
descriptor = {theirs.fileno()}
line = Connection(descriptor)
say = lambda said: line.send_bytes(json.dumps(said).encode())
line.recv_bytes()
{answer}
"""
    with theirs:
        child = subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
    limits = Limits(seconds=1.0 if "longer" in said else 60.0)
    began = time.monotonic()
    with child, ours, contextlib.closing(process.ProcessPipe(ours, child, limits)) as line:
        with pytest.raises(NetworkFailed, match=said):
            process.Encoder(line, **SHAPE, facts={}).encode(ROWS[:3])
        child.kill()
    assert time.monotonic() < began + 50


def test_the_process_of_a_network_is_sandboxed() -> None:
    """A network's process runs in the sandbox, as user nobody if the gateway runs as root. It has one thread, no open
    file except the pipe, a system-call filter, and limits that prevent it from opening or creating further descriptors,
    processes or files."""
    with process.started(nets.linear(), **SHAPE, limits=LIMITS) as encoder:
        assert encoder.encode(ROWS).shape == (70, nets.OUT)
        folder = Path("/proc") / str(encoder._line._child.pid)
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
        user = str(os.getuid() or sandbox.NOBODY)
        assert status["Uid"].split() == [user] * 4
        assert (status["Threads"], status["Seccomp"], status["NoNewPrivs"]) == ("1", "2", "1")
        assert int(status["CapEff"], 16) == 0
        limits = {line[:26].strip(): line[26:].split()[:2] for line in (folder / "limits").read_text().splitlines()}
        none = ("Max file size", "Max core file size", "Max processes", "Max open files")
        assert {name: limits[name] for name in none} == {name: ["0", "0"] for name in none}
        if os.getuid() == 0:
            assert len(list((folder / "fd").iterdir())) == 4
            assert {os.readlink(file) for file in (folder / "fd").iterdir() if int(file.name) < 3} == {"/dev/null"}


def test_a_network_is_not_run_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the sandbox cannot be set up, for example because the process already has a second thread, the network is not
    run and the error states the reason."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=[60], daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NetworkFailed, match=r"run only in a sandbox.*: the process has more than one thread"):
        process.examine(nets.linear(), LIMITS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (nets.slow(60_000), "computes 3600000000 numbers of a row"),
        (nets.declaring(2**40), "more numbers than it holds"),
        (nets.declaring(-1), "more numbers than it holds"),
    ],
)
def test_declared_sizes_are_checked_before_running(content: bytes, said: str) -> None:
    """A file of a few hundred bytes whose declared sizes add up to gigabytes is refused because of those sizes."""
    assert len(content) < 1000
    with pytest.raises(NetworkInvalid, match=said):
        process.examine(content, LIMITS)


@pytest.mark.slow
def test_a_small_file_gets_low_memory_and_time_limits() -> None:
    """If a network's intermediate sizes depend on its rows, its memory limit is derived from the size of the file
    rather than set to the maximum. Its examination has the time limit of a single batch."""
    with pytest.raises(NetworkFailed, match=r"more memory than 10737\d{5} bytes"):
        process.examine(nets.slow(60_000, hidden=True), Limits(memory_bytes=2**36))
    began = time.monotonic()
    with pytest.raises(NetworkFailed, match=r"longer than 2 seconds"):
        process.examine(nets.slow(5000, hidden=True), Limits(seconds=2.0))
    assert time.monotonic() < began + 120


@pytest.mark.parametrize("begins", ["child", "new_session"])
def test_the_runtime_sends_no_telemetry(begins: str, tmp_path: Path) -> None:
    """In the processes that run networks and served models, onnxruntime neither creates its event database in the home
    folder nor starts a thread that sends events."""
    program = """
import os, sys
from tests.features.networks import nets
if sys.argv[1] == "child":
    from lethe.features.networks.encoders import child
else:
    from lethe.features.networks import encoding
    encoding.new_session(nets.linear())
assert "onnxruntime" in sys.modules
print(len(os.listdir("/proc/self/task")))
"""
    environment = os.environ | {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if begins == "child":
        environment |= process._ENVIRONMENT
    threads = subprocess.check_output([sys.executable, "-c", program, begins], env=environment, text=True)
    assert threads == "1\n"
    assert list(tmp_path.iterdir()) == []


def test_default_network_limits_match_a_gateway() -> None:
    """By default, networks have the same limits in a dry run as at a gateway."""
    assert service.limits_of(Settings()) == Limits()

"""Put on PYTHONPATH by tests, so that every process of an installation imports it: a process that takes the steps of a
chain records, in the folder FORENSIC_PROBE, what may never be readable: gradients, iterates before their noise,
iterates.

It records the first three and the last three of each kind in a process, masked, as they would otherwise be found here.
The first process that finds STOP in that folder after recording all six removes it and stops itself."""

import importlib.abc
import importlib.util
import os
import signal
import sys
from collections import Counter

MASK = 0xA5
KEPT = 3
STOP = "stop"


class _Watching(importlib.abc.MetaPathFinder):
    """Wraps the step as soon as the chain's module is imported."""

    def find_spec(self, name, path, target=None):
        if name != "worker.langevin.chain":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        executed = spec.loader.exec_module

        def exec_module(module):
            executed(module)
            module.projected_noisy_step = _watched(module.projected_noisy_step)

        spec.loader.exec_module = exec_module
        return spec


def _watched(step):
    noted = Counter()

    def note(kind, tensor):
        """Write a tensor's masked bytes to a file."""
        count = noted[kind]
        noted[kind] += 1
        number = count if count < KEPT else KEPT + count % KEPT
        descriptor = os.open(
            os.path.join(os.environ["FORENSIC_PROBE"], f"{os.getpid()}.{kind}.{number}"),
            os.O_WRONLY | os.O_CREAT,
            0o600,
        )
        os.write(descriptor, (tensor.numpy().view("u1") ^ MASK).tobytes())
        os.close(descriptor)

    def stop_if_asked():
        try:
            os.unlink(os.path.join(os.environ["FORENSIC_PROBE"], STOP))
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    class Rows:
        def __init__(self, rows, named):
            self._rows, self._named = rows, named

        def gradient(self, parameters, block=slice(None)):
            summed = self._rows.gradient(parameters, block)
            named = self._named
            note("gradient", summed)
            before_noise = summed.mul(-named["step_size"] / named["num_slots"])
            before_noise.add_(parameters, alpha=1 - named["step_size"] * named["l2"])
            note("before noise", before_noise)
            before_noise.zero_()
            return summed

    def watched(noise, state, *, rows, **named):
        after = step(noise, state, rows=Rows(rows, named), **named)
        note("iterate", after.parameters)
        if noted["iterate"] == 2 * KEPT:
            stop_if_asked()
        return after

    return watched


if "FORENSIC_PROBE" in os.environ:
    sys.meta_path.insert(0, _Watching())

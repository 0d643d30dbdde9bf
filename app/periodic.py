"""Periodic calls of a function in a thread."""

import threading
from collections.abc import Callable
from typing import Self

from app import telemetry


class Periodic:
    """Thread that calls a function every `seconds` from `start` until `stop`; with `seconds=None`, only when woken. The
    first call begins after the first interval. If a call fails, its error class is logged unless the previous call
    raised the same; the schedule is unaffected. An instance that lives as long as the process need not be stopped."""

    def __init__(self, name: str, call: Callable[[], object], *, seconds: float | None) -> None:
        self._name = name
        self._call = call
        self._seconds = seconds
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def wake(self) -> None:
        """Start the next call immediately, or as soon as the one in progress ends."""
        self._woken.set()

    def stop(self) -> None:
        """Let the call in progress finish, and start no more. The function itself may call this."""
        self._stopping = True
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def is_stopping(self) -> bool:
        """True once `stop` has been called. A function with several steps checks this between steps."""
        return self._stopping

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _run(self) -> None:
        failure = None
        while True:
            self._woken.wait(self._seconds)
            self._woken.clear()
            if self._stopping:
                return
            before, failure = failure, None
            try:
                self._call()
            # The next call may succeed.
            except Exception as error:  # noqa: BLE001
                failure = type(error).__name__
                if failure != before:
                    telemetry.logger().error("periodic.call_failed", name=self._name, error=failure)

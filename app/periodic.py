"""A function that a thread of its own calls again and again."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from app import telemetry


class Periodic:
    """Call a function every so many seconds, from `start` until `stop`; with `seconds=None`, only when woken.

    The first call comes when the first seconds are over. A call that fails is logged, by the class of its error alone
    and unless the one before failed alike; the next one comes at its time. What lives as long as the process need not
    be stopped.
    """

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
        """Have the next call begin at once, or as soon as the one in progress has ended."""
        self._woken.set()

    def stop(self) -> None:
        """Let the call in progress end, and begin no more; the call itself may say so."""
        self._stopping = True
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def is_stopping(self) -> bool:
        """True once it is to end: a call with several things to do asks between them."""
        return self._stopping

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            except Exception as error:  # noqa: BLE001  the next call may do better
                failure = type(error).__name__
                if failure != before:
                    telemetry.logger().error("periodic.call_failed", name=self._name, error=failure)

"""A registered network at work, for the rows of an upload or the records of a prediction."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from app.config import Settings
from app.db.tables import Network
from app.encoders import service
from lethe.encoders import process
from lethe.encoders.limits import Limits
from lethe.encoders.process import Encoder


class Opened:
    """A network whose file was read and is the one on record: it runs where a process is started for it."""

    def __init__(self, row: Network, content: bytes, limits: Limits) -> None:
        self.id = row.id
        self.input_size = 1
        for size in row.input_shape:
            self.input_size *= size
        self._output_size, self._batch_size = row.output_size, row.batch_size
        self._content = content
        self._limits = limits

    @contextmanager
    def started(self) -> Iterator[Encoder]:
        """The network at work until the block ends. Raises `NetworkFailed`."""
        with process.started(
            self._content,
            input_size=self.input_size,
            output_size=self._output_size,
            batch_size=self._batch_size,
            limits=self._limits,
        ) as encoder:
            yield encoder


def opened(session: Session, settings: Settings, network_id: str) -> Opened:
    """Raises `NetworkUnknown`, and `DatabaseDamaged` where its file is not the one on record."""
    row = service.get(session, network_id)
    return Opened(row, service.content_of(session, row), service.limits_of(settings))

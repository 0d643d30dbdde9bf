"""Places for network processes: a call beyond them is refused at once, and holds no thread that answers others."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.turns import Turns
from lethe.contract.problems import Busy

OF_TENANT = 3
"""Maximum network processes of a tenant at the same time."""
IN_ALL = 6
"""Maximum network processes at the same time: half of the gateway's threads (`app.api.gateway`)."""
_places = Turns(IN_ALL, of_one=OF_TENANT)


@contextmanager
def place(tenant_id: str) -> Iterator[None]:
    """Count a network process of a tenant until the block ends. Raises `Busy` beyond `OF_TENANT` and `IN_ALL`."""
    asked = _places.ask(tenant_id)
    try:
        if not asked.done():
            raise Busy("Nothing was done. Repeat the call in a second, with its Idempotency-Key if it has one.")
        yield
    finally:
        _places.end(tenant_id, asked)

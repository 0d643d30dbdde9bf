"""Passes over rows by other implementations than the host's, each on CPU tensors."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from lethe import sockets

OTHERS: dict[str, Callable[..., AbstractContextManager[Any]]] = {
    module.__name__.split(".")[2]: partial(module.DeviceRows, device=torch.device("cpu"))
    for module in sockets.modules("worker.features", "rows")
}
"""Function that opens rows by feature; empty without the feature gpu."""

"""All operations that the contract declares, in the core and in each feature's own contract."""

import importlib
import pkgutil
from typing import Any

import lethe.contract
from lethe import sockets
from lethe.contract.operation import Operation

_CORE = [
    importlib.import_module(f"lethe.contract.{module.name}") for module in pkgutil.iter_modules(lethe.contract.__path__)
]
OPERATIONS: list[Operation[..., Any]] = [
    declared
    for module in (*_CORE, *sockets.modules("lethe.features", "contract"))
    for declared in vars(module).values()
    if isinstance(declared, Operation)
]

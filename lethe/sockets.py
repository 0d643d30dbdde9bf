"""Sockets: the points at which features plug into the core, which imports none of them.

A feature is a folder in `app/features`, `lethe/features` or `worker/features`, and joins through modules with fixed
names, such as `tables` or `endpoints`. Each of these packages lists the installed features in `FEATURES`.
"""

import functools
import importlib
import importlib.util
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


@functools.cache
def modules(package: str, name: str) -> tuple[ModuleType, ...]:
    """Import the module `name` from every feature of `package` that has it, in the order of the package's `FEATURES`.

    The result is empty if the package is not installed.
    """
    if importlib.util.find_spec(package) is None:
        return ()
    installed = importlib.import_module(package)
    # `importlib.util.find_spec` of the module would import its feature, if only to find that it has none.
    folders = {feature: [f"{path}/{feature}" for path in installed.__path__] for feature in installed.FEATURES}
    having = [feature for feature, paths in folders.items() if PathFinder.find_spec(name, paths)]
    return tuple(importlib.import_module(f"{package}.{feature}.{name}") for feature in having)


@functools.cache
def plugs(package: str, name: str, attribute: str) -> tuple[Any, ...]:
    """Concatenate the tuples called `attribute` from the modules `name` of all features in `package`."""
    return tuple(plug for module in modules(package, name) for plug in getattr(module, attribute, ()))

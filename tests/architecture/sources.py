"""Source files of the product, and the facts about each of them that rules need, collected in one pass over its syntax
tree."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("app", "lethe", "worker") for path in (ROOT / folder).rglob("*.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a source file.

    `called` are the names that it calls, bare or as a method. `compared` are pairs of an expression and a text in the
    code that the expression is compared with, also by SQL or by its prefix or suffix. `imported` are pairs of a module
    and a name that top-level statements import. `functions` are names of functions, and `attributes` are pairs of a
    name and an attribute that is read from it, each with its line.
    """

    called: frozenset[str]
    compared: frozenset[tuple[str, str]]
    imported: tuple[tuple[str, str], ...]
    functions: tuple[tuple[int, str], ...]
    attributes: tuple[tuple[int, str, str], ...]


@functools.cache
def facts(path: Path) -> Facts:
    """Return the facts of a file. Its syntax tree, which takes a hundred times as much memory, is not kept."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return Facts(
        called=frozenset(
            str(call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) for call in calls
        ),
        compared=frozenset(pair for node in nodes for pair in _comparisons(node)),
        imported=tuple((node.module or "", alias.name) for node in imports for alias in node.names),
        functions=tuple(
            (node.lineno, node.name) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        attributes=tuple(
            (node.lineno, node.value.id, node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ),
    )


def _comparisons(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each value that a node compares with a text, together with that text."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
        case ast.Call(func=ast.Attribute(value=left, attr="in_" | "not_in" | "like" | "startswith" | "endswith")):
            sides = [left, *node.args]
        case _:
            return
    for side in sides:
        for one in ast.walk(side):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield ast.unparse(sides[0]), one.value

"""Measure the tree against its ceilings: `python -m tests.architecture.ceilings` prints the room left under each.

A change that exceeds a ceiling must first delete code, and one that deletes code lowers it. The product may grow by
features, each within its own ceiling; its goal of 58,000 lines is for what it was before identity maps, systems,
evidence packs, objective perturbation, trainers, ledgers, stores, delete lists, quotas and copies of weights."""

import ast
import collections
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREES = ("app", "lethe", "worker")
MAX_CORE_LINES = 34_000
MAX_PRODUCT_LINES = 80_100
MAX_FEATURE_LINES = 2_500
LARGER = {"desk": 9_000}
"""Ceilings of features above `MAX_FEATURE_LINES`."""
MAX_FILE_LINES = 800
MAX_PARAMETERS = 12
MAX_IMPORT_SHARE = 0.065
MANY_PARAMETERS = ("worker/langevin/kernels.py", "lethe/features/theorems/")
"""Numerical kernels, and theorems, whose parameters are the symbols of the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A bound on a measurement of the tree."""

    name: str
    measured: float
    maximum: float

    @property
    def is_kept(self) -> bool:
        return self.measured <= self.maximum

    def __str__(self) -> str:
        if isinstance(self.maximum, float):
            return f"{self.name}: {self.measured:.1%} of at most {self.maximum:.1%}"
        return f"{self.name}: {self.measured:,} of at most {self.maximum:,}, {self.maximum - self.measured:,} left"


def sources() -> dict[str, str]:
    """Return the text of each Python file of the product except migrations, by its path from the root."""
    paths = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py") if path.parent.name != "migrations")
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf8") for path in paths}


def feature_of(path: str) -> str | None:
    """Return the feature that a file belongs to, or None if the file belongs to the core or joins all features."""
    parts = path.split("/")
    return parts[2] if parts[1] == "features" and len(parts) > 3 else None


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield each statement of a file, including nested ones. Expressions, which make up most of a tree, are not
    yielded."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            within = getattr(node, part, ())
            yield from within
            waiting += within


def import_lines(tree: ast.Module) -> int:
    """Count the lines of import statements."""
    imports = (node for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def parameters(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the number of parameters and the name of each function."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            yield len(given.args) + len(given.kwonlyargs) + len(given.posonlyargs), node.name


def ceilings() -> list[Ceiling]:
    """Measure the tree and return its ceilings. Those for features, files and parameters name the feature, the largest
    file and the function with the most parameters."""
    files = sources()
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = {path: text.count("\n") for path, text in files.items()}
    by_feature: collections.Counter[str | None] = collections.Counter()
    for path, count in lines.items():
        by_feature[feature_of(path)] += count
    product = sum(lines.values())
    core = by_feature.pop(None)
    largest = max(lines, key=lines.__getitem__)
    signatures = [
        (count, f"{path} {name}")
        for path, tree in trees.items()
        if not path.startswith(MANY_PARAMETERS)
        for count, name in parameters(tree)
    ]
    longest, function = max(signatures)
    imports = sum(import_lines(tree) for tree in trees.values()) / product
    return [
        Ceiling(name="lines of the core", measured=core, maximum=MAX_CORE_LINES),
        Ceiling(name="lines of the product", measured=product, maximum=MAX_PRODUCT_LINES),
        *(
            Ceiling(
                name=f"lines of {feature}",
                measured=count,
                maximum=LARGER.get(feature or "", MAX_FEATURE_LINES),
            )
            for feature, count in sorted(by_feature.items(), key=lambda item: -item[1])
        ),
        Ceiling(name=f"lines of a file ({largest})", measured=lines[largest], maximum=MAX_FILE_LINES),
        Ceiling(name=f"parameters of a function ({function})", measured=longest, maximum=MAX_PARAMETERS),
        Ceiling(name="share of imports", measured=imports, maximum=MAX_IMPORT_SHARE),
    ]


if __name__ == "__main__":
    measured = ceilings()
    for ceiling in measured:
        print(ceiling)
    sys.exit(not all(ceiling.is_kept for ceiling in measured))

"""English in the code: retired words, and the technical terms that replace them."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, facts

RETIRED = {
    "bell": "notifier",
    "chore": "periodic job",
    "courier": "dispatcher",
    "letter": "payload",
    "looks": "access events, or another verb",
    "nobody's": "a noun without an owner",
    "pace": "runtime estimate",
    "turn": "write lock",
    "visit": "request context",
    "whoever": "the caller, the reader, somebody who",
}
"""Retired words in names, comments and docstrings, singular or plural, and their replacements. Strings that are names,
as of threads and log events, count as such."""

ALLOWED = {
    "bell": {"app/dispatch.py": "the pipe, whose name is in data folders"},
    "letter": {
        "app/features/webhooks/endpoints.py": "the column",
        "lethe/features/desk/contract.py": "a letter on paper",
        "app/features/webhooks/migrations/webhooks_0001_initial_schema.py": "the column",
        "app/features/webhooks/tables.py": "the column of webhook_deliveries, whose name is in databases and backups",
        "app/features/webhooks/jobs.py": "the column",
        "app/features/webhooks/repository.py": "the column",
        "lethe/contract/fields.py": "letters of the alphabet",
        "lethe/features/drop/standard.py": "letters of names",
        "app/features/webhooks/dispatcher.py": "the column",
        "app/features/webhooks/service.py": "the column",
    },
    "pace": {
        "app/features/insight/endpoints.py": "the field of the HTTP contract",
        "lethe/features/insight/contract.py": "the field of the HTTP contract",
    },
    "turn": {
        "app/features/queue/service.py": "the order of datasets among tenants",
        "app/api/forms.py": "the order of tenants, as of `app/turns.py`",
        "app/api/intake.py": "the same",
        "app/db/session.py": "the same",
        "app/features/networks/service.py": "the same",
        "app/keys.py": "the verb",
        "app/rows/uploads.py": "the order of tenants, as of `app/turns.py`",
        "app/turns.py": "the order in which tenants are served",
        "app/unlearning/due_repository.py": "the order of datasets among tenants",
        "app/unlearning/waiting.py": "the order of datasets among tenants",
        "app/unlearning/turns.py": "the order of datasets among tenants",
    },
    "visit": {
        "app/features/desk/pages/evidence.py": "steps that read a batch, a field of the HTTP contract",
        "lethe/contract/runs.py": "steps that read a batch",
        "lethe/proof/canary_test.py": "steps that read a batch",
        "lethe/features/theorems/shift.py": "steps that read a batch",
        "worker/evidence.py": "steps that read a batch",
    },
}
"""Files in which a retired word has another meaning, each with the meaning."""

_NAME = re.compile(r"[\w.-]+")
_WORD = re.compile(r"nobody's|[a-z]+", re.IGNORECASE)
_ASKED_OF_AN_INSTALLATION = {"database", "keys", "rows", "settings", "vault", "weights"}


def docstrings(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """Yield the docstrings of modules, classes, functions and assignments, each with its owner."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                match statement:
                    case ast.Expr(value=ast.Constant(value=str()) as text):
                        yield getattr(node, "name", ""), text


def words(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the words of names, comments, docstrings and name-like strings in lower case, each with its line."""
    found = {(text.lineno, text.col_offset) for _, text in docstrings(tree)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.start in found
        is_name = token.type == tokenize.STRING and _NAME.fullmatch(token.string.strip("\"'"))
        if is_docstring or is_name or token.type in (tokenize.NAME, tokenize.COMMENT):
            for word in _WORD.findall(separated(token.string)):
                yield token.start[0], word.lower()


def separated(text: str) -> str:
    """Return the text with a space between the words of each name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")


def may_have_retired_words(source: str) -> bool:
    """Return False if the text contains no retired word at all, so that `words`, which takes a hundred times as long,
    need not read the file."""
    return any(retired(word.lower()) for word in set(_WORD.findall(separated(source))))


def retired(word: str) -> str | None:
    return next((one for one in (word, word.removesuffix("s")) if one in RETIRED), None)


def by_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_retired_words_are_not_used() -> None:
    """Names, comments and docstrings contain no retired words, and every listed exception is still needed."""
    found = [
        (by_path(path), line, one)
        for path in SOURCES
        if may_have_retired_words(source := path.read_text())
        for line, word in words(source, ast.parse(source))
        if (one := retired(word))
    ]
    refused = [
        f"{path}:{line}: {one}, say {RETIRED[one]}" for path, line, one in found if path not in ALLOWED.get(one, {})
    ]
    assert refused == []
    needed = {(one, path) for path, _, one in found}
    assert needed == {(one, path) for one, paths in ALLOWED.items() for path in paths if (ROOT / path).exists()}


@pytest.mark.slow
def test_functions_are_named_after_what_they_return() -> None:
    """No function is called `told`, `shown` or `said`; functions are named after their results."""
    functions = (
        f"{by_path(path)}:{line}: {name}"
        for path in SOURCES
        for line, name in facts(path).functions
        if {"told", "shown", "said"} & set(name.split("_"))
    )
    assert list(functions) == []


def test_at_names_only_times() -> None:
    """A variable called `at` always holds a time: the code never reads an attribute from it that only an installation
    has."""
    found = [
        f"{by_path(path)}:{line}: at.{attribute}"
        for path in SOURCES
        for line, name, attribute in facts(path).attributes
        if name == "at" and attribute in _ASKED_OF_AN_INSTALLATION
    ]
    assert found == []

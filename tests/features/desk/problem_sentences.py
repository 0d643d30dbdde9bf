"""Sentences of problems as the code declares and raises them: templates, and the facts that fill them in.

The scan reads the modules whose problems a page can show. Commands of the server answer in a terminal, in English.
"""

import ast
import functools
import inspect
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app import errors
from lethe import sockets
from lethe.contract import problems
from lethe.contract.problems import Problem

ROOT = Path(__file__).parents[3]
SHOWN = ("app", "lethe/contract", "lethe/encoding", "lethe/verification", "lethe/features/networks")
IN_TERMINALS = ("app/cli/", "app/db/migrate.py")
DECLARING = (problems, *sockets.modules("lethe.features", "contract"))
CONDITIONS = {
    name: kind
    for module in DECLARING
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Problem) and name not in vars(errors)
}
_NUMBERS = re.compile(r"\b\d+\b")
_ARGUMENTS = {"errors", "retry_after"}
_MAKES_SENTENCES = re.compile(rf"\b(?:Sentence|FieldError|ValueError|{'|'.join(CONDITIONS)})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A place that creates a problem or a sentence: its template, or None if that is not a literal, and its facts."""

    place: str
    text: str | None
    facts: frozenset[str]


@functools.cache
def declared() -> dict[str, dict[str, str]]:
    """Return each condition's templates, keyed by the name of its class. The class's own template has the key
    "template"."""
    found: dict[str, dict[str, str]] = {}
    for node in (node for module in DECLARING for node in ast.walk(ast.parse(inspect.getsource(module)))):
        if isinstance(node, ast.ClassDef) and node.name in CONDITIONS:
            values = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg == "template"}
            for statement in node.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    values[statement.targets[0].id] = statement.value
            found[node.name] = {str(name): text for name, value in values.items() if (text := _template(value))}
    return found


def _template(value: ast.expr) -> str | None:
    if isinstance(value, ast.Call) and _name(value.func) == "variant":
        value = value.args[0]
    return _literal(value)


def places_of(template: str) -> set[str]:
    """Return the names of the facts in a template."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def raised() -> tuple[Raised, ...]:
    """Return every place in the code that creates a problem or a problem's sentence."""
    return _scan()[0]


@functools.cache
def texts() -> tuple[str, ...]:
    """Return the texts of all problems that a page can show: templates, literals, and messages of faults."""
    own = [text for templates in declared().values() for text in templates.values()]
    return (*own, *(one.text for one in raised() if one.text), *faults())


def faults() -> tuple[str, ...]:
    """Return the messages of faults and of the contract's checks, with braces in place of numeric bounds."""
    return _scan()[1]


@functools.cache
def _scan() -> tuple[tuple[Raised, ...], tuple[str, ...]]:
    """Parse each module once, and return the places that create problems and the messages of faults."""
    templates = declared()
    modules = [(list(_raised(module, templates)), list(_faults(module))) for module in _modules()]
    return tuple(one for places, _ in modules for one in places), tuple(one for _, said in modules for one in said)


def _raised(module: "_Module", templates: dict[str, dict[str, str]]) -> Iterator[Raised]:
    for call, function in module.calls:
        if any(keyword.arg is None for keyword in call.keywords):
            # The constructors themselves, which pass on the facts that they were given.
            continue
        place = f"{module.path} {function}"
        name = _name(call.func)
        facts = frozenset(str(one.arg) for one in call.keywords if one.arg not in _ARGUMENTS)
        kind = _name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if (name == "Sentence" or name in CONDITIONS) and call.args:
            for text in module.texts_of(call.args[0], function):
                # A catalogue has one text for all values of a bound, but a template names its facts.
                yield Raised(place=place, text=None if "{}" in (text or "") else text, facts=facts)
        elif name in CONDITIONS:
            yield Raised(place=place, text=templates[name].get("template"), facts=facts)
        elif kind in CONDITIONS and (template := templates[kind].get("template" if name == "if_none" else name)):
            yield Raised(place=place, text=template, facts=facts)


def _faults(module: "_Module") -> Iterator[str]:
    for call, function in module.calls:
        if _name(call.func) == "FieldError" and len(call.args) == 2:
            yield from filter(None, module.texts_of(call.args[1], function))
        if _name(call.func) == "ValueError" and module.path.startswith("lethe/contract/"):
            # Forms begin them with a capital.
            yield from (text[0].upper() + text[1:] for text in module.texts_of(call.args[0], function) if text)


class _Module:
    """A module, with its calls, each with the name of its function."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.calls: list[tuple[ast.Call, str]] = []
        self._functions: dict[str, ast.FunctionDef] = {}
        self._assigned: dict[tuple[str, str], list[ast.expr]] = {}
        for node, function in _nodes(tree):
            match node:
                case ast.Call():
                    self.calls.append((node, function))
                case ast.FunctionDef():
                    self._functions[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name), *_]):
                    self._assigned.setdefault((function, name), []).append(node.value)

    def texts_of(self, value: ast.expr, function: str) -> list[str | None]:
        """Return the possible texts of an expression: a literal, a name that stands for literals, or a parameter of
        `function` with the texts that calls in the module pass. None stands for any other text."""
        if isinstance(value, ast.Call) and _name(value.func) == "gettext":
            return self.texts_of(value.args[0], function)
        if isinstance(value, ast.Call) and _name(value.func) == "Sentence":
            return []
        if not isinstance(value, ast.Name):
            return [_literal(value) or _bounded(value)]
        if assigned := self._assigned.get((function, value.id)) or self._assigned.get(("", value.id)):
            return [text for one in assigned for text in self.texts_of(one, function)]
        parameters = [one.arg for one in self._functions[function].args.args] if function in self._functions else []
        if value.id not in parameters:
            return [None]
        place = parameters.index(value.id)
        calls = [(call, caller) for call, caller in self.calls if _name(call.func) == function]
        given = [(call.args[place], caller) for call, caller in calls if len(call.args) > place]
        return [text for one, caller in given if caller != function for text in self.texts_of(one, caller)]


def _literal(value: ast.expr) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _bounded(value: ast.expr) -> str | None:
    """Return an f-string with braces in place of bounds, or None if it has other values, which a catalogue cannot
    know."""
    if not isinstance(value, ast.JoinedStr):
        return None
    parts = []
    for part in value.values:
        if isinstance(part, ast.FormattedValue):
            name = _name(part.value).lstrip("_").lower()
            if part.format_spec or not name.startswith(("max", "min")):
                return None
            parts.append("{}")
        else:
            parts.append(_NUMBERS.sub("{}", str(_literal(part))))
    return "".join(parts)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _modules() -> Iterator[_Module]:
    """Yield the modules that name a problem or a sentence, and whose problems a page can show."""
    for tree in SHOWN:
        for file in sorted((ROOT / tree).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if not path.startswith(IN_TERMINALS) and _MAKES_SENTENCES.search(text := file.read_text("utf8")):
                yield _Module(path, ast.parse(text))


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield a tree's nodes, parents before children, each with the name of the function that contains it."""
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        yield node, function
        waiting += [(child, function) for child in reversed([*ast.iter_child_nodes(node)])]

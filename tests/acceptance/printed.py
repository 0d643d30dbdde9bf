"""Compare the output that a page prints with the real output, ignoring values that differ between runs."""

import json
import re
from typing import Any

ID = re.compile(r"\b(ds|mdl|dr|crt)_[0-9a-f]{20}\b")
OTHER_EACH_TIME = {
    ID: r"\1_ID",
    re.compile(r"\b[0-9a-f]{12}(?:\.\.\.|[0-9a-f]{52}\b)"): "HASH",
    re.compile(r"\b\d{4}-\d\d-\d\d(?:T[\d:.]+Z)?"): "DATE",
    re.compile(r"(?<=  key )[\w-]{12}$"): "KEY",
    re.compile(r">= [\d.]+ proved"): ">= N proved",
    re.compile(r"\b\d+\.\d+ s\b"): "N s",
    re.compile(r"^(│ seconds +│) [\d.]+ +│ [\d.]+"): r"\1 N │ N",
    re.compile(r"(?<=\d)\.\d\d%"): ".N%",
    re.compile(r"\b\d+ by a plain refit"): "N by a plain refit",
}
"""Values that differ between runs: ids, hashes, times, signers, results of canary tests, seconds, decimals of
accuracies, iterations of another solver."""
NOISY = "probabilities"
"""The field of an answer whose numbers differ each time."""


def lines(text: str) -> list[str]:
    """Return the lines with varying values masked and runs of spaces collapsed."""
    return [re.sub(r"(?<=\S) +", " ", masked(line.rstrip())) for line in text.splitlines()]


def masked(text: str) -> str:
    for pattern, word in OTHER_EACH_TIME.items():
        text = pattern.sub(word, text)
    return text


def documents(text: str) -> list[Any]:
    """Return all JSON documents in `text`, which must contain nothing but JSON documents."""
    found, decoder, rest = [], json.JSONDecoder(), text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        found.append(document)
        rest = rest[end:].strip()
    return found


def steady(document: Any) -> Any:
    """Return a response with varying values masked and floats rounded to six significant digits."""
    match document:
        case dict():
            return {name: sorted(value) if name == NOISY else steady(value) for name, value in document.items()}
        case list():
            return [steady(value) for value in document]
        case str():
            return masked(document)
        case float():
            return float(f"{document:.6g}")
    return document


def shortened(answer: Any, *, like: Any) -> Any:
    """Return the response without the fields that the page elides with `"...": "..."`."""
    if isinstance(answer, dict) and isinstance(like, dict):
        kept = answer.keys() & like.keys() if "..." in like else answer.keys()
        short = {name: shortened(answer[name], like=like.get(name)) for name in answer if name in kept}
        return short | ({"...": "..."} if "..." in like else {})
    if isinstance(answer, list) and isinstance(like, list) and len(answer) == len(like):
        return [shortened(one, like=other) for one, other in zip(answer, like, strict=True)]
    return answer

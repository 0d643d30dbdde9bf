"""The choice of a method, and the refusal of a method that is not installed."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lethe.proof import accountant, certificate, methods
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.langevin import LANGEVIN
from tests.lethe.proof.test_certificate import MECHANISM, statement


def test_a_mechanism_without_a_method_is_langevin() -> None:
    """A Langevin mechanism's document names no method, and its numbers are those of the Langevin accountant."""
    document = MECHANISM.to_json()
    assert "method" not in document
    read = methods.read(document)
    assert (read, methods.of(read)) == (MECHANISM, LANGEVIN)
    runs = [Run(steps=MECHANISM.learn_steps), Run(steps=7, records=1)]
    assert methods.replay(read, runs) == accountant.replay(MECHANISM, runs)


def test_an_extended_history_continues_its_cached_chain() -> None:
    """Replaying a history that extends a cached one gives the same chain as replaying it from the start, even while
    other threads replay. The cached chain is not used for a history with a different past or with steps before it."""
    runs = [Run(steps=MECHANISM.learn_steps)]
    for number in range(100):
        runs.append(Run(steps=7 + number % 2, records=1))
        assert methods.replay(MECHANISM, runs) == accountant.replay(MECHANISM, runs)
    assert methods.replay(MECHANISM, runs[:3]) == accountant.replay(MECHANISM, runs[:3])
    assert methods.replay(MECHANISM, runs[1:], steps_before=9) == accountant.replay(MECHANISM, runs[1:], steps_before=9)
    with ThreadPoolExecutor(8) as threads:
        lengths = [1 + number % len(runs) for number in range(0, 8000, 7)]
        chains = list(threads.map(lambda length: methods.replay(MECHANISM, runs[:length]), lengths))
    assert all(len(chain.runs) == length for chain, length in zip(chains, lengths, strict=True))
    with pytest.raises(DomainError):
        methods.replay(MECHANISM, runs, steps_before=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["folklore", "", None, 1, ["langevin"]])
def test_a_method_that_is_not_installed_is_refused(name: Any) -> None:
    """A mechanism with an unknown method is refused, both alone and in a certificate, and the error names the
    method."""
    with pytest.raises(PreconditionError, match="method_installed"):
        methods.read(MECHANISM.to_json() | {"method": name})
    document = json.loads(json.dumps(statement()))
    document["evidence"]["mechanism"]["method"] = name
    with pytest.raises(PreconditionError, match="method_installed"):
        certificate.check(document)

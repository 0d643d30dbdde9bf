"""The public network that a model stands on: frozen before the first row came, named by the SHA-256 of its file.

What a person's record does to a network that learned from it is bounded by nothing here. So a mechanism names the
network, and every certificate says that it rests on the network never having learned from the person, or which other
ledger accounts for what it learned.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lethe.proof.errors import DomainError, PreconditionError, require_count, require_positive

LONGEST_LICENCE = 200
LONGEST_DP_LEDGER = 500
MOST_LAYERS = 10_000
LONGEST_LAYER = 500
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linearisation:
    """The weights in which a tangent model is linear, and how each row's Jacobian in them is scaled
    (`docs/mathematics/tangents.md`).

    `layers`: their names in the file. `rank` r >= 1: each weight (out, in) of them moves by U A alone, with U (out, r)
    learned and A (r, in) drawn by numpy's Philox of `seed`, standard normal over sqrt(in); 0: each as a whole.
    `least_norm` rho_0 > 0: no Jacobian is divided by less. `offset`: the scores of the network itself are added.

    Raises `DomainError`.
    """

    layers: tuple[str, ...]
    rank: int = 0
    seed: int = 0
    least_norm: float = 1e-6
    offset: bool = True

    def __post_init__(self) -> None:
        if type(self.layers) is not tuple or not 0 < len(self.layers) <= MOST_LAYERS:
            raise DomainError(f"Expected linearisation.layers to be a tuple of 1 to {MOST_LAYERS} names")
        for name in self.layers:
            _require_line(LONGEST_LAYER, layer=name)
        if len(set(self.layers)) != len(self.layers):
            raise DomainError("Expected each of linearisation.layers once")
        require_count(0, rank=self.rank, seed=self.seed)
        require_positive(least_norm=self.least_norm)
        if type(self.offset) is not bool:
            raise DomainError("Expected linearisation.offset to be true or false")

    def shape(self, weight: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is learned of a weight of this shape: its own, or (out, rank) where that is less."""
        if self.rank and len(weight) > 1 and self.rank < math.prod(weight[1:]):
            return (weight[0], self.rank)
        return tuple(weight)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layers": list(self.layers)}

    @classmethod
    def from_json(cls, document: Any) -> "Linearisation":
        """The inverse of `to_json`. Raises `PreconditionError` for other fields, `DomainError` for what they cannot
        be."""
        _require_fields(document, _OF_LINEARISATION, "a linearisation")
        if not isinstance(document["layers"], list) or type(document["least_norm"]) is not float:
            raise PreconditionError("network_of_format", "Expected a list of layers, and a float as least_norm")
        return cls(**document | {"layers": tuple(document["layers"])})


_OF_LINEARISATION = ("layers", "rank", "seed", "least_norm", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNetwork:
    """A frozen network, as a mechanism and hence a certificate names it.

    `sha256` of the ONNX file; `licence`, an SPDX expression or the name of a text; `opset` >= 1 of the ONNX operators;
    `dp_ledger`: where the network's own account of differential privacy is, None for a network that never learned from
    the people concerned. `linearisation`: of a tangent model; None where the network only encodes rows.

    Raises `DomainError`.
    """

    sha256: str
    licence: str
    opset: int
    dp_ledger: str | None = None
    linearisation: Linearisation | None = None

    def __post_init__(self) -> None:
        if type(self.sha256) is not str or not _SHA256.fullmatch(self.sha256):
            raise DomainError("Expected network.sha256 of 64 hexadecimal digits")
        _require_line(LONGEST_LICENCE, licence=self.licence)
        require_count(1, opset=self.opset)
        if self.dp_ledger is not None:
            _require_line(LONGEST_DP_LEDGER, dp_ledger=self.dp_ledger)

    @property
    def rests_on(self) -> str:
        """The sentence that every certificate about a model on this network has among its limits."""
        if self.dp_ledger is None:
            return (
                f"It rests on the public network of SHA-256 {self.sha256} (licence {self.licence}) never having learned"
                " from this person: nobody can check that from the certificate, and what the network learned of anybody"
                " stays in it."
            )
        return (
            f"What the public network of SHA-256 {self.sha256} (licence {self.licence}) learned of this person stays in"
            f" it and is not counted here; its own ledger accounts for that: {self.dp_ledger}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "sha256": self.sha256,
            "licence": self.licence,
            "opset": self.opset,
            "dp_ledger": self.dp_ledger,
            "linearisation": self.linearisation and self.linearisation.to_json(),
        }

    @classmethod
    def from_json(cls, document: Any) -> "PublicNetwork":
        """The network of a stored document. Raises `PreconditionError` if it has other fields, `DomainError` for what
        they cannot be."""
        _require_fields(document, _FIELDS, "a network")
        moved = document["linearisation"]
        return cls(**document | {"linearisation": None if moved is None else Linearisation.from_json(moved)})


_FIELDS = ("sha256", "licence", "opset", "dp_ledger", "linearisation")


def rests_on(networks: Iterable[PublicNetwork | None]) -> list[str]:
    """The sentences about these networks, each once, in their order."""
    return list(dict.fromkeys(network.rests_on for network in networks if network is not None))


def _require_fields(document: Any, names: Sequence[str], of: str) -> None:
    if not isinstance(document, dict) or document.keys() != set(names):
        raise PreconditionError("network_of_format", f"Expected {of} to state {', '.join(names)}")


def _require_line(longest: int, **values: Any) -> None:
    for name, value in values.items():
        if type(value) is not str or not 0 < len(value) <= longest or not value.isprintable() or not value.strip():
            raise DomainError(f"Expected {name} of a network to be a line of {longest} printable characters at most")

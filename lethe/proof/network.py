"""The public network that a model stands on: frozen before the first row came, named by the SHA-256 of its file.

What a person's record does to a network that learned from it is bounded by nothing here. So a mechanism names the
network, and every certificate says that it rests on the network never having learned from the person, or which other
ledger accounts for what it learned.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lethe.proof.errors import DomainError, PreconditionError, require_count, require_nonnegative

LONGEST_LICENCE = 200
LONGEST_DP_LEDGER = 500
MOST_LAYERS = 10_000
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNetwork:
    """A frozen network, as a mechanism and hence a certificate names it.

    `sha256` of the ONNX file; `licence`, an SPDX expression or the name of a text; `opset` >= 1 of the ONNX operators;
    `dp_ledger`: where the network's own account of differential privacy is, None for a network that never learned from
    the people concerned. `layers`: the parameters in which a tangent model is linear, none where the network only
    encodes rows; `least_norm` >= 0, the least spectral norm by which a row's Jacobian is divided, above 0 if and only
    if there are layers.

    Raises `DomainError`.
    """

    sha256: str
    licence: str
    opset: int
    dp_ledger: str | None = None
    layers: tuple[str, ...] = ()
    least_norm: float = 0.0

    def __post_init__(self) -> None:
        if type(self.sha256) is not str or not _SHA256.fullmatch(self.sha256):
            raise DomainError("Expected network.sha256 of 64 hexadecimal digits")
        _require_line(LONGEST_LICENCE, licence=self.licence)
        require_count(1, opset=self.opset)
        if self.dp_ledger is not None:
            _require_line(LONGEST_DP_LEDGER, dp_ledger=self.dp_ledger)
        if type(self.layers) is not tuple or len(self.layers) > MOST_LAYERS:
            raise DomainError(f"Expected network.layers to be a tuple of {MOST_LAYERS} names at most")
        for name in self.layers:
            _require_line(LONGEST_DP_LEDGER, layer=name)
        if len(set(self.layers)) != len(self.layers):
            raise DomainError("Expected each of network.layers once")
        require_nonnegative(least_norm=self.least_norm)
        if bool(self.layers) != (self.least_norm > 0):
            raise DomainError("Expected network.least_norm > 0 if and only if there are layers")

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
            "layers": list(self.layers),
            "least_norm": self.least_norm,
        }

    @classmethod
    def from_json(cls, document: Any) -> "PublicNetwork":
        """The network of a stored document. Raises `PreconditionError` if it has other fields, `DomainError` for what
        they cannot be."""
        if not isinstance(document, dict) or document.keys() != set(_FIELDS):
            raise PreconditionError("network_of_format", f"Expected a network to state {', '.join(_FIELDS)}")
        if not isinstance(document["layers"], list) or type(document["least_norm"]) is not float:
            raise PreconditionError("network_of_format", "Expected a list of layers, and a float as least_norm")
        return cls(**document | {"layers": tuple(document["layers"])})


_FIELDS = ("sha256", "licence", "opset", "dp_ledger", "layers", "least_norm")


def rests_on(networks: Iterable[PublicNetwork | None]) -> list[str]:
    """The sentences about these networks, each once, in their order."""
    return list(dict.fromkeys(network.rests_on for network in networks if network is not None))


def _require_line(longest: int, **values: Any) -> None:
    for name, value in values.items():
        if type(value) is not str or not 0 < len(value) <= longest or not value.isprintable() or not value.strip():
            raise DomainError(f"Expected network.{name} to be a line of {longest} printable characters at most")

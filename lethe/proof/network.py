"""Public networks: pretrained, frozen before the first row arrives, and identified by the SHA-256 of their file.

No guarantee bounds a record's influence on a network that was trained on it. A mechanism therefore names its network,
and every certificate either states the assumption that the network was never trained on the person's data or names the
separate ledger that accounts for the network's training.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lethe.proof.errors import DomainError, PreconditionError, require_count, require_positive

MAX_LICENCE_LENGTH = 200
MAX_DP_LEDGER_LENGTH = 500
MAX_LAYERS = 10_000
MAX_LAYER_NAME_LENGTH = 500
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linearisation:
    """Linearisation of a network: the weights in which the tangent model is linear, and the scaling of its Jacobians.

    Reference: `docs/mathematics/tangents.md`.

    Attributes:
        layers: Names of the weights in the network's file.
        rank: Rank r of the update. If r >= 1, a weight of shape (out, in) changes by U A, where U of shape (out, r) is
            trained and A of shape (r, in) is fixed: standard normal over sqrt(in), from numpy's Philox with `seed`. If
            0, the full weight is trained.
        seed: Seed of A.
        least_norm: Lower limit rho_0 > 0 on the norm by which a Jacobian is divided.
        offset: Whether the network's own scores are added.

    Raises:
        DomainError: if a value is out of range or a layer is named twice.
    """

    layers: tuple[str, ...]
    rank: int = 0
    seed: int = 0
    least_norm: float = 1e-6
    offset: bool = True

    def __post_init__(self) -> None:
        if type(self.layers) is not tuple or not 0 < len(self.layers) <= MAX_LAYERS:
            raise DomainError(f"Expected linearisation.layers to be a tuple of 1 to {MAX_LAYERS} names")
        for name in self.layers:
            _require_line(MAX_LAYER_NAME_LENGTH, layer=name)
        if len(set(self.layers)) != len(self.layers):
            raise DomainError("Expected each of linearisation.layers once")
        require_count(0, rank=self.rank, seed=self.seed)
        require_positive(least_norm=self.least_norm)
        if type(self.offset) is not bool:
            raise DomainError("Expected linearisation.offset to be true or false")

    def shape(self, weight: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a weight's trained part: (out, rank) if smaller, otherwise the weight's own shape."""
        if self.rank and len(weight) > 1 and self.rank < math.prod(weight[1:]):
            return (weight[0], self.rank)
        return tuple(weight)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as stated in a mechanism's document."""
        return asdict(self) | {"layers": list(self.layers)}

    @classmethod
    def from_json(cls, document: Any) -> "Linearisation":
        """Parse the result of `to_json`.

        Raises:
            PreconditionError: if the fields differ or have the wrong type.
            DomainError: if a value is out of range.
        """
        _require_fields(document, _LINEARISATION_FIELDS, "a linearisation")
        if not isinstance(document["layers"], list) or type(document["least_norm"]) is not float:
            raise PreconditionError("network_of_format", "Expected a list of layers, and a float as least_norm")
        return cls(**document | {"layers": tuple(document["layers"])})


_LINEARISATION_FIELDS = ("layers", "rank", "seed", "least_norm", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNetwork:
    """Frozen public network, as identified in a mechanism and its certificates.

    Attributes:
        sha256: Hexadecimal SHA-256 of the ONNX file.
        licence: SPDX expression or name of a licence text.
        opset: Version >= 1 of the ONNX operator set.
        dp_ledger: Location of the network's own differential-privacy ledger; None if the network was never trained on
            data about the people concerned.
        linearisation: Linearisation of a tangent model; None if the network only encodes rows.

    Raises:
        DomainError: if a value is out of range.
    """

    sha256: str
    licence: str
    opset: int
    dp_ledger: str | None = None
    linearisation: Linearisation | None = None

    def __post_init__(self) -> None:
        if type(self.sha256) is not str or not _SHA256.fullmatch(self.sha256):
            raise DomainError("Expected network.sha256 of 64 hexadecimal digits")
        _require_line(MAX_LICENCE_LENGTH, licence=self.licence)
        require_count(1, opset=self.opset)
        if self.dp_ledger is not None:
            _require_line(MAX_DP_LEDGER_LENGTH, dp_ledger=self.dp_ledger)

    @property
    def rests_on(self) -> str:
        """Sentence about this network, listed among the limitations in the certificates of every model that uses it."""
        if self.dp_ledger is None:
            return (
                f"The certificate assumes that the public network of SHA-256 {self.sha256} (licence {self.licence})"
                " never learned from this person: this cannot be checked from the certificate, and whatever the network"
                " learned from anyone stays in it."
            )
        return (
            f"What the public network of SHA-256 {self.sha256} (licence {self.licence}) learned of this person stays in"
            f" it and is not counted here; its own ledger accounts for that: {self.dp_ledger}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as stated in a mechanism's document."""
        return asdict(self) | {"linearisation": self.linearisation and self.linearisation.to_json()}

    @classmethod
    def from_json(cls, document: Any) -> "PublicNetwork":
        """Parse the result of `to_json`.

        Raises:
            PreconditionError: if the fields differ or have the wrong type.
            DomainError: if a value is out of range.
        """
        _require_fields(document, _NETWORK_FIELDS, "a network")
        stated = document["linearisation"]
        return cls(**document | {"linearisation": None if stated is None else Linearisation.from_json(stated)})


_NETWORK_FIELDS = ("sha256", "licence", "opset", "dp_ledger", "linearisation")


def rests_on(networks: Iterable[PublicNetwork | None]) -> list[str]:
    """Return the distinct sentences about `networks`, in order. None stands for a model without a network."""
    return list(dict.fromkeys(network.rests_on for network in networks if network is not None))


def _require_fields(document: Any, names: Sequence[str], label: str) -> None:
    """Check that `document`, called `label` in messages, is an object with exactly these fields."""
    if not isinstance(document, dict) or document.keys() != set(names):
        raise PreconditionError("network_of_format", f"Expected {label} to state {', '.join(names)}")


def _require_line(max_length: int, **values: Any) -> None:
    """Check that each value is a printable, non-blank line of at most `max_length` characters."""
    for name, value in values.items():
        if type(value) is not str or not 0 < len(value) <= max_length or not value.isprintable() or not value.strip():
            raise DomainError(f"Expected {name} of a network to be a line of {max_length} printable characters at most")

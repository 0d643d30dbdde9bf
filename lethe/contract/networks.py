"""Public networks: frozen before the first row came, and named by the SHA-256 of their file."""

from pydantic import Field

from lethe.contract.fields import Answer


class PublicNetworkOut(Answer):
    """The network that a model stands on: its guarantees count nothing that the network itself learned."""

    sha256: str = Field(description="Of its ONNX file.")
    licence: str
    opset: int
    dp_ledger: str | None = Field(description="Where its own account of differential privacy is.")
    layers: list[str] = Field(description="Parameters in which a tangent model is linear; none: it encodes rows.")
    least_norm: float = Field(description="The least norm by which a row's Jacobian is divided; 0 without layers.")

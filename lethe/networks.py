"""`client.networks`: public networks, by whose features models are learned."""

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from lethe.arguments import Upload
from lethe.contract import networks
from lethe.methods import H, Resource, call, pages, upload


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class NewNetwork(Upload):
    """An .onnx file with its weights in it; `name`: default the file's.

    `licence`: an SPDX expression, or the name of a text. `provenance`: what the network was trained on, in words.
    `dp_ledger`: where the network's own account of differential privacy is, if it learned from people.
    """

    licence: str
    provenance: str
    name: str | None = None
    dp_ledger: str | None = None

    def fields(self) -> dict[str, str]:
        """The fields of the form."""
        given = {
            "name": self.file_name.removesuffix(".onnx") if self.name is None else self.name,
            "licence": self.licence,
            "provenance": self.provenance,
            "dp_ledger": self.dp_ledger,
        }
        return {name: value for name, value in given.items() if value is not None}


class Networks(Resource[H]):
    upload = upload(networks.UPLOAD, NewNetwork)
    list = pages(networks.LIST)
    get = call(networks.GET)
    file = call(networks.FILE)
    delete = call(networks.DELETE)

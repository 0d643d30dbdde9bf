"""Tables on the caller's own machine: `preview(table, schema=...)` shows encoded rows and the cost in accuracy,
`infer(table, label=...)` proposes a schema from a public sample. No data leaves the machine."""

from lethe.client.files import Frame
from lethe.features.tables.inferring import infer  # type: ignore[import-not-found, unused-ignore]
from lethe.features.tables.networks import NetworkFile  # type: ignore[import-not-found, unused-ignore]
from lethe.features.tables.previewing import Preview, preview  # type: ignore[import-not-found, unused-ignore]

__all__ = ["Frame", "NetworkFile", "Preview", "infer", "preview"]

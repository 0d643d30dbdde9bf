"""Tables on the caller's own machine: `infer(table, label=...)` proposes a schema from a public sample, and
`preview(table, schema=...)` shows encoded rows and the cost of accuracy. Nothing leaves the machine.
"""

from lethe.client.files import Frame
from lethe.features.tables.inferring import infer
from lethe.features.tables.networks import NetworkFile
from lethe.features.tables.preview import Preview, preview

__all__ = ["Frame", "NetworkFile", "Preview", "infer", "preview"]

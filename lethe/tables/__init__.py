"""Tables on the caller's own machine: read, described by a schema, and tried out before anything is sent.

`preview(table, schema=...)` says how rows look once they are encoded, and what accuracy costs;
`infer(table, label=...)` proposes a schema from a public sample. Nothing leaves the machine.
"""

from lethe.frames import Frame
from lethe.tables.inferring import infer
from lethe.tables.preview import Preview, preview

__all__ = ["Frame", "Preview", "infer", "preview"]

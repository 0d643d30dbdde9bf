"""Tables on the caller's own machine: `preview(table, schema=...)` tries one out, `infer(table, label=...)` proposes a
schema. Nothing leaves the machine."""

from lethe.features.tables import (  # type: ignore[import-not-found, unused-ignore]
    Frame,
    NetworkFile,
    Preview,
    infer,
    preview,
)

__all__ = ["Frame", "NetworkFile", "Preview", "infer", "preview"]

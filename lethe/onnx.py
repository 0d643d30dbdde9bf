"""Complete models as ONNX files, from record to probability: `export(client, model_id, "model.onnx")`."""

from lethe.features.handover.onnx import Exported, export  # type: ignore[import-not-found, unused-ignore]

__all__ = ["Exported", "export"]

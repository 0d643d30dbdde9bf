"""Whole models as ONNX files, from record to probability: `export(client, model_id, "model.onnx")`.

A file is a copy of the weights, recorded like every export: people who are forgotten later stay in the file.
"""

from lethe.features.handover.onnx.exporting import Exported, export

__all__ = ["Exported", "export"]

"""Whole models as ONNX files, from record to probability: `export(client, model_id, "model.onnx")`.

A file is a copy of the weights, handed out and recorded as every other: who is forgotten later stays in it.
"""

from lethe.onnx.exporting import Exported, export

__all__ = ["Exported", "export"]

"""Public networks: ONNX files that make features of records, checked when they come and run in a process apart."""

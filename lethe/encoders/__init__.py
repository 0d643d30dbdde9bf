"""A public network at work: an ONNX file that is examined when it comes, and run in a process apart; by the gateway,
and in a dry run on the caller's machine."""

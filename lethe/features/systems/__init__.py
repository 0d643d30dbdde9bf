"""Systems that learned from people or hold them, their tasks in a request, and the signed bundle of a request."""

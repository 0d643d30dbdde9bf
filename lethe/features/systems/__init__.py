"""Systems that learned from people's data or store it, their tasks per request, and the signed bundle of a request."""

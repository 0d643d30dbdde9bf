"""Systems that were trained on people's data or store it, their tasks per request, and a request's signed bundle."""

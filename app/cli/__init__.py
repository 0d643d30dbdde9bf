"""Commands of the server, available in `lethe` if the server is installed."""

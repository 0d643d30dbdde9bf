"""How the service is doing: what waits, what is late, what the runs did, whether workers live."""

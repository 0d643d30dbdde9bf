"""Trainers outside Lethe: signed manifests of retrainings, and the client that makes them."""

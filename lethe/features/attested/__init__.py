"""Trainers outside of Lethe: signed manifests of retrainings, and the client that makes them."""

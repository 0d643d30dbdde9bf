"""Trainers that live elsewhere: signed manifests of retrainings, and the client that makes them."""

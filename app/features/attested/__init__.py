"""Trainers outside Lethe: requests waiting for the next retraining, signed manifests, and permission to serve."""

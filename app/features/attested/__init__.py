"""Trainers outside of Lethe: requests waiting for their next retraining, their manifests, and permissions to serve."""

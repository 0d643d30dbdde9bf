"""Trainers that live elsewhere: who waits for their next retraining, their manifests, and what may be served."""

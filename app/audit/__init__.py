"""Audit log: one hash-chained log of actions per tenant, with checkpoints signed by the installation."""

"""The audit log: one hash-chained log of deeds per tenant, with checkpoints that the installation signs."""

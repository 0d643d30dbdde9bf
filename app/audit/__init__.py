"""Who did what: one hash-chained log per tenant, with checkpoints that the installation signs."""

"""Mathematics of forgetting: pure functions that alone suffice to verify everything that the service signs."""

"""Mathematics of forgetting: pure functions that suffice to verify everything the service signs."""

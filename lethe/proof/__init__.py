"""Mathematics of forgetting: pure functions, sufficient by themselves to verify everything that the service signs."""

"""The mathematics of forgetting: pure, and enough to verify what the service signs, by itself."""

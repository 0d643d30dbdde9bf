"""Reports of searches in systems' stores, as evidence for the systems' tasks."""

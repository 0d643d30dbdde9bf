"""Reports on searches of systems' stores, as evidence for the systems' tasks."""

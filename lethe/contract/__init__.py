"""HTTP contract: calls, the scopes they need, and their responses. Gateway, SDK and command line derive from it."""

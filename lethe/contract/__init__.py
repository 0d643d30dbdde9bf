"""HTTP contract: calls, the scopes that they need, and their answers. Gateway, SDK and command line derive from it."""

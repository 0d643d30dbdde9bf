"""The HTTP contract: what can be asked, by whom, and what is answered. Gateway, SDK and command line stand on it."""

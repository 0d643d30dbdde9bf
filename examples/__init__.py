"""Examples. A package of its own, because some libraries install one of the same name."""

"""Data at rest: objects and texts, each sealed under its own key, and the stores that hold them."""

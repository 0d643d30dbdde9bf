"""The public encoding: how records become rows, by a schema alone. The gateway, the SDK and served models share it."""

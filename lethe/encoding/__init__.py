"""Public encoding of records into rows, by a schema alone, shared by the gateway, the SDK and served models."""

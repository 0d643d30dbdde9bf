"""Public encoding of records into rows, determined by a schema alone; shared by gateway, SDK and served models."""

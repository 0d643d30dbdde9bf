"""Kinds of stores that are supported, which are those that the tests run on."""

VECTOR_STORES = ("chroma", "lancedb", "pgvector")
KINDS = (*VECTOR_STORES, "documents")

"""Hooks of the feature drop: hashes of identifiers of the identity map."""

from app.features.drop import endpoints

IDENTIFIERS_LOADED = (endpoints.note_identifiers,)

"""Hooks of the `identities` feature: kinds of identifiers, and use of the identity map when requests are submitted."""

from app.features.identities import advice, kinds, service

REFERENCES = (kinds.references,)
OBSERVES_SUBJECTS = (advice.observe,)
IS_KIND_USED = (kinds.is_used,)
RESOLVES = (service.resolve,)

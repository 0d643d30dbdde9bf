"""Hooks of the feature identities: kinds of identifiers, and the map at the submission of requests."""

from app.features.identities import advice, kinds, service

REFERENCES = (kinds.references,)
OBSERVES_SUBJECTS = (advice.observe,)
IS_KIND_USED = (kinds.is_used,)
RESOLVES = (service.resolve,)

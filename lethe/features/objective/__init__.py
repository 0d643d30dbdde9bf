"""Objective perturbation: models that minimise their objective anew, with a fresh random linear term, at every version.

Statement and proofs: `docs/mathematics/objective-perturbation.md`.
"""

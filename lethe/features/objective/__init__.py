"""Objective perturbation: each version minimises the objective from scratch, with a fresh random linear term.

Statement and proofs: `docs/mathematics/objective-perturbation.md`.
"""

"""Tangent models: a public network linearised in its weights around their public values (docs/mathematics/tangents.md).

Workers and served models share this code. No other part of the SDK requires torch (extra `tangents`).
"""

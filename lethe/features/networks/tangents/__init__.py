"""Tangent models: a public network, linearised in its weights at their values (docs/mathematics/tangents.md).

Workers and served models share this code. No other part of the SDK needs torch (extra `tangents`).
"""

"""Tangent models: a public network, made linear in its weights around those it has (docs/mathematics/tangents.md).

The only part of the SDK that needs torch (its extra `tangents`), shared by workers and models that are served.
"""

"""Uploads of numpy's npz files."""

"""Uploads in npz files of numpy."""

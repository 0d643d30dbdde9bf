"""Uploads of parquet files."""

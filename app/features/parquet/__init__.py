"""Uploads in parquet files."""

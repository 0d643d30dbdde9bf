"""Rows and weights in a bucket of an S3 server."""

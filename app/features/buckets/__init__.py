"""Storage of rows and weights in a bucket on an S3 server."""

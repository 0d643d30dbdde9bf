"""Canary people: invented people whom a pipeline learns and is asked to forget, and a test whether it did."""

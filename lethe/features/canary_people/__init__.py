"""Canary people: invented people whom a pipeline trains on and is asked to forget, and a test of whether it did."""

"""Contract, client, commands and evidence of trainers."""

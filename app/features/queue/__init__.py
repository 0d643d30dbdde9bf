"""A tenant's queue: datasets that are due, in the order in which workers claim them, and one day's runs."""

"""The queue of a tenant: datasets that are due, in the order in which workers claim them, and the runs of a day."""

"""Systems outside Lethe: a register, tasks with signed webhooks, acknowledgements, and the bundle of a request."""

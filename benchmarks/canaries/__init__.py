"""What the audit of a run finds, what it proves and what it costs (`./dev bench canaries`)."""

"""Who may do what, and the same answer to a question asked twice."""

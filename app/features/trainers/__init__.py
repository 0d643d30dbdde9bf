"""Models trained from scratch, in isolation, on the rows that are present: tables, trainers and training runs."""

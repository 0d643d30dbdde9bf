"""People's rows: encoded in sealed blocks, with records that identify the person of each row."""

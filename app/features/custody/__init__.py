"""A tenant's audit log and ledgers over HTTP, on the command line and as an export."""

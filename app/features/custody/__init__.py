"""The audit log and the ledgers of a tenant over HTTP, on the command line and as an export."""

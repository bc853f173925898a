"""Evidence: what an auditor takes away, in one signed bundle."""

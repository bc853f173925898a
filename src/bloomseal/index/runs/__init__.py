"""A run: sorted fingerprints in sealed files, written, read and merged."""

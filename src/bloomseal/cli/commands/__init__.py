"""One file for a command."""

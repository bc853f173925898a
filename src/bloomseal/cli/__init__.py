"""The command line: thin commands over the public API. Rendering and demonstration live here too, nothing else does."""

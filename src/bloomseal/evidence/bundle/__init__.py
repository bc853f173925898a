"""The bundle itself, whatever is in it: archive, manifest, signatures."""

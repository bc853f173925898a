"""Frames, streams and inserts into sealed tables, and the check of what came of it."""

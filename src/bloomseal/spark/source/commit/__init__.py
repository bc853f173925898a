"""Writes that are seen whole or not at all, in folders that somebody else may write to."""

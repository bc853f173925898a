"""Encrypted Bloom filters for lakehouse files."""

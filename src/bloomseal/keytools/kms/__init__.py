"""KMS clients, one module per scheme. Each has `from_uri`, loads its vendor's library on first use, and needs
an extra.
"""

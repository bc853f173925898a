"""Rows of a stripe: its streams opened, cut, checked, and put into a plaintext file that pyarrow decodes."""

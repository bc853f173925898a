"""The rules: facts in, findings out."""

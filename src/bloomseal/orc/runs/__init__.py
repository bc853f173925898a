"""ORC's run-length encodings (ORC specification, "Run Length Encoding"), walked through before a decoder does."""

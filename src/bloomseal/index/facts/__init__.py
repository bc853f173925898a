"""The files that facts are about: seen, hashed, and known again."""

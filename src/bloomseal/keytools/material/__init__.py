"""Key material: its JSON, its place beside or inside a file, and keys wrapped under keys."""

"""Where files are, how they are read at positions, and how one is replaced. Knows no Parquet and no key."""

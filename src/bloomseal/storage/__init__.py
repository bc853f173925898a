"""Places of files, reading at positions, and the replacement of a file. Knows no Parquet and no key."""

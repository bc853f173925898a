"""Data pages: headers, levels, contents, statistics, as far as they are needed without decoding values."""

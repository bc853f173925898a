"""The hashes of a chunk's values, taken from its pages, and a filter held against them."""

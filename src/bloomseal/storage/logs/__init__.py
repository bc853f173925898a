"""Tables that keep a log of their files: Delta and Iceberg, and the one form that both are read into."""

"""What commands have in common: files, keys, conditions, values and input data, from text."""

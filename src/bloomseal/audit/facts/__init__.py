"""The inventory: what every file, module and key of a place is, as far as it can be seen."""

"""May a master key version be destroyed? *Yes* only when nothing is left to doubt."""

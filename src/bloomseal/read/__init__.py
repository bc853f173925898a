"""One file out: predicates, pruning, rows."""

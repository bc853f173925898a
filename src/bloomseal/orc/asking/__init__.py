"""From values to verdicts: hashes and the bits they choose, filters that are not believed, a stripe's answers."""

"""From values to verdicts: their hashes, filters that are not believed, a stripe's answers."""

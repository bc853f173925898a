"""Key metadata → data key: explicit keys, key material, and the seams to whoever guards master keys."""

"""Rotation: new wrapping, new data keys, encryption and decryption of many files, planned, journalled and reported."""

"""A KMS in a file: master keys with versions and states, encrypted under a passphrase or as safe as its mode."""

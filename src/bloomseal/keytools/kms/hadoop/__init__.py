"""Hadoop's key providers: its KMS, keystores, and the Java objects inside those."""

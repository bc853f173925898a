"""Conditions: built, bound to a schema, compared exactly."""

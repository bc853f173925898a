"""The demonstration: a million made-up people, written, looked up, compared and attacked."""

"""The rule of discovery: which files a place holds, and which of them are a table."""

"""The command line: a thin front door over the public API."""

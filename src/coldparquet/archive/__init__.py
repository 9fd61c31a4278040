"""Archived objects: which ones they are, what restoring them costs, asking for it, and waiting until they can be read."""

"""Handles archived objects: which ones they are, what a restore costs, requesting it, and waiting for it."""

"""Follows a table: finds what changed since a state, and delivers the new rows."""

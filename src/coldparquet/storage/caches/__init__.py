"""What is kept of what was fetched: in memory and on disk."""

"""What a table consists of: its own files, its partitions, their sidecars, and one state of all that."""

"""Jobs over whole lakes, in pieces of plain data that any engine can run."""

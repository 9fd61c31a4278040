"""Following a table: what changed since a state, and handing over the rows that came."""

"""Reads the expressions of pyarrow, which every engine hands over that pushes its filters down."""

"""``python -m coldparquet.cli``: the same as the command ``coldparquet``."""

from coldparquet.cli.app import main

main()

"""``python -m coldparquet``: the same as the command ``coldparquet``."""

from coldparquet.cli.app import main

if __name__ == "__main__":
    main()

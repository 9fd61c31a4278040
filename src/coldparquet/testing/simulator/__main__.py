"""``python -m coldparquet.testing.simulator``: the simulated cold store as a process of its own."""

from coldparquet.testing.simulator.command import main

if __name__ == "__main__":
    main()

"""Runs the simulated cold store as a process of its own: ``python -m coldparquet_testing.simulator``."""

from coldparquet_testing.simulator.command import main

if __name__ == "__main__":
    main()

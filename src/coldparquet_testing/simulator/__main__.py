"""``python -m coldparquet_testing.simulator``: the simulated cold store as a process of its own."""

from coldparquet_testing.simulator.command import main

if __name__ == "__main__":
    main()

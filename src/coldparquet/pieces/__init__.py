"""A plan cut into portable pieces of work, for engines that read with many processes."""

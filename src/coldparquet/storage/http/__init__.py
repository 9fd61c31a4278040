"""What S3 and web servers have in common: connections, ranged GETs, bodies that break off."""

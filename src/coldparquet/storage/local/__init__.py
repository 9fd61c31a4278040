"""Files on disks of this machine."""

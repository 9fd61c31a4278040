"""Getting byte ranges from local disks and object stores: one small protocol, adapters, and wrappers around them."""

"""Files on web servers, and presigned URLs."""

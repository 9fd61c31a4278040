#!/usr/bin/env bash
# Start moto's S3 server; buckets are gone when it stops.
set -euo pipefail
exec python3 -m moto.server -H 127.0.0.1 -p "${1:-9101}"

#!/usr/bin/env bash
# Serve a directory, whose folders are buckets, as a cold S3 store.
set -euo pipefail
exec python3 -m coldparquet.testing.simulator --root "${1:?usage: cold_store.sh DIRECTORY [PORT]}" \
  --port "${2:-9100}" --first-byte-ms 30 --bandwidth-mb 90

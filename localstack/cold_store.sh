#!/usr/bin/env bash
# Serve a directory, whose folders are buckets, as a cold S3 store: cold_store.sh [DIRECTORY] [PORT] [ARGUMENT...]
#
# 30 ms to the first byte and 90 MB/s per connection, as S3 Standard has. An empty DIRECTORY gets a bucket `bucket`; without one
# everything is gone when the server stops. The port is a free one unless given. Further arguments make it colder or worse, see
# `python3 -m coldparquet_testing.simulator --help`: --storage-class 'bucket/trades/*=GLACIER' --clock-speed 3600,
# --fault slow-down,operation=*,probability=0.02. Any credentials will do.
set -euo pipefail
. "$(dirname "$0")/server.sh"

need python3
end_with_parent "$@"
data_directory "${1:-}"
port=${2:-$(free_port)}
shift $(($# < 2 ? $# : 2))
log=$(mktemp) # not beside what it serves
trap 'rm -f "$log"' EXIT
[ -n "$(ls -A "$directory")" ] || mkdir "$directory/bucket"

serve_s3 "the cold store" "$port" cold-store cold-store \
  python3 -m coldparquet_testing.simulator --root "$directory" --port "$port" --first-byte-ms 30 --bandwidth-mb 90 "$@"

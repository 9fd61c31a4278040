#!/usr/bin/env bash
# Start moto, an S3 that keeps everything in memory and plays the archive classes: moto.sh [PORT]
#
# The port is a free one unless given. Any credentials will do. It has one bucket, `bucket`. Objects that are put with the
# storage class GLACIER or DEEP_ARCHIVE cannot be read before they are restored, which takes no time here.
set -euo pipefail
. "$(dirname "$0")/server.sh"

need python3 curl
python3 -c 'import moto.server, flask' 2>/dev/null || {
  echo "$0 needs the Python package moto with its server and S3, for the python3 on the PATH: pip install 'moto[s3,server]'" >&2
  exit 1
}
end_with_parent "$@"
data_directory ""
port=${1:-$(free_port)}
export AWS_ACCESS_KEY_ID=moto AWS_SECRET_ACCESS_KEY=moto

make_bucket() { curl -sSf -X PUT "http://127.0.0.1:$port/bucket" >/dev/null; }

serve_s3 moto "$port" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" python3 -m moto.server -H 127.0.0.1 -p "$port"

#!/usr/bin/env bash
# Start the S3 of LocalStack, without Docker: localstack.sh [DIRECTORY] [PORT]
#
# DIRECTORY gets its log; objects are gone when it stops, but for an empty /tmp/localstack-s3-storage. The port is a free one
# unless given. Any credentials will do. It has one bucket, `bucket`. It checks what is uploaded, and plays the archive classes;
# a restore takes no time here. `localstack.sh --install` only fetches it, from PyPI into a Python environment of its own; that
# takes minutes, once.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=4.13.1 # the next one needs Python 3.12
environment="$cache/localstack-$version"

install_server() {
  [ -d "$environment" ] && return
  local made
  mkdir -p "$cache"
  made=$(mktemp -d "$cache/build.XXXXXX")
  echo "fetching LocalStack $version (200 MB)" >&2
  python3 -m venv "$made"
  # Bounds for what it does not bound itself: later ones have lost what it calls.
  "$made/bin/python" -m pip install --quiet --disable-pip-version-check \
    "localstack-core[base-runtime]==$version" 'localstack-twisted<26' 'cbor2<6' 'pyopenssl<25' >&2
  mv "$made" "$environment" # in one step, so that no process finds half of it
}

begin_installed "$environment" "$@"
need curl
data_directory "${1:-}"
port=${2:-$(free_port)}

make_bucket() {
  for _ in {1..100}; do # half a minute
    curl -sf "http://127.0.0.1:$port/_localstack/health" | grep -q '"s3": "running"' && break
    sleep 0.3
  done
  curl -sSf -X PUT "http://127.0.0.1:$port/bucket" >/dev/null
}

# Loopback only, one service, nothing fetched and nothing sent home.
export GATEWAY_LISTEN="127.0.0.1:$port" SERVICES=s3 STRICT_SERVICE_LOADING=1 EAGER_SERVICE_LOADING=1
export DNS_ADDRESS=0 DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1
export LOCALSTACK_VOLUME_DIR="$directory" FILESYSTEM_ROOT="$directory"
serve_s3 LocalStack "$port" localstack localstack "$environment/bin/python" -m localstack.runtime.main

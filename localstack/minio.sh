#!/usr/bin/env bash
# Start MinIO, a real S3 server: minio.sh [DIRECTORY] [PORT]
#
# DIRECTORY holds the objects; without one they are gone when it stops. The port is a free one unless given. Credentials are
# new ones unless MINIO_ROOT_USER and MINIO_ROOT_PASSWORD say otherwise. It has one bucket, `bucket`.
# `minio.sh --install` only builds it, which takes about five minutes on two cores, once.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=v0.0.0-20260212201848-7aac2a2c5b7c # the last source that was released; the project tags no module versions
minio="$cache/minio-$version/minio"

install_server() {
  [ -x "$minio" ] && return
  need go
  local built
  mkdir -p "$cache"
  built=$(mktemp -d "$cache/build.XXXXXX")
  echo "building MinIO $version, which takes about five minutes" >&2
  GOBIN="$built" nice -n 10 go install -trimpath -ldflags '-s -w' "github.com/minio/minio@$version" >&2
  mkdir -p "$(dirname "$minio")"
  mv "$built/minio" "$minio" # in one step, so that nobody finds half a file
  rmdir "$built"
}

if [ "${1:-}" = --install ]; then install_server; exit; fi
need python3
end_with_parent "$@"
install_server
data_directory "${1:-}"
port=${2:-$(free_port)}
log="$directory/server.log"
mkdir -p "$directory/data/bucket" # a folder there is a bucket

random_word() { od -An -N12 -tx1 /dev/urandom | tr -d ' \n'; }
export MINIO_ROOT_USER="${MINIO_ROOT_USER:-$(random_word)}" MINIO_ROOT_PASSWORD="${MINIO_ROOT_PASSWORD:-$(random_word)}"

announce() {
  cat <<TEXT
MinIO is ready; Ctrl-C stops it
  endpoint    http://127.0.0.1:$port
  bucket      s3://bucket
  objects     $directory/data

  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  export AWS_ACCESS_KEY_ID=$MINIO_ROOT_USER AWS_SECRET_ACCESS_KEY=$MINIO_ROOT_PASSWORD
TEXT
}

export MINIO_BROWSER=off MINIO_UPDATE=off MINIO_CALLHOME_ENABLE=off GOMEMLIMIT=1GiB
serve "$port" "$minio" server "$directory/data" --address "127.0.0.1:$port" --quiet

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

install_server() { go_install "MinIO $version (about five minutes)" "github.com/minio/minio@$version" "$minio"; }

begin_installed "$minio" "$@"
data_directory "${1:-}"
port=${2:-$(free_port)}
mkdir -p "$directory/data/bucket" # a folder there is a bucket

export MINIO_ROOT_USER="${MINIO_ROOT_USER:-$(random_word)}" MINIO_ROOT_PASSWORD="${MINIO_ROOT_PASSWORD:-$(random_word)}"
export MINIO_BROWSER=off MINIO_UPDATE=off MINIO_CALLHOME_ENABLE=off GOMEMLIMIT=1GiB
serve_s3 MinIO "$port" "$MINIO_ROOT_USER" "$MINIO_ROOT_PASSWORD" \
  "$minio" server "$directory/data" --address "127.0.0.1:$port" --quiet

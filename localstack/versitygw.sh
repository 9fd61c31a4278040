#!/usr/bin/env bash
# Start versitygw, a second real S3 server: versitygw.sh [DIRECTORY] [PORT]
#
# DIRECTORY holds the objects as plain files; without one they are gone when it stops. The port is a free one unless given.
# Credentials are new ones unless ROOT_ACCESS_KEY and ROOT_SECRET_KEY say otherwise. It has one bucket, `bucket`.
# `versitygw.sh --install` only builds it, which takes about four minutes on two cores, once.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=v1.8.0
versitygw="$cache/versitygw-$version/versitygw"

install_server() { go_install "versitygw $version (about four minutes)" "github.com/versity/versitygw/cmd/versitygw@$version" "$versitygw"; }

begin_installed "$versitygw" "$@"
data_directory "${1:-}"
port=${2:-$(free_port)}
mkdir -p "$directory/data/bucket" # a folder there is a bucket

export ROOT_ACCESS_KEY="${ROOT_ACCESS_KEY:-$(random_word)}" ROOT_SECRET_KEY="${ROOT_SECRET_KEY:-$(random_word)}"
serve_s3 versitygw "$port" "$ROOT_ACCESS_KEY" "$ROOT_SECRET_KEY" \
  "$versitygw" --port "127.0.0.1:$port" --quiet posix "$directory/data"

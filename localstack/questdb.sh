#!/usr/bin/env bash
# Start a real QuestDB: questdb.sh [DIRECTORY] [HTTP_PORT] [POSTGRES_PORT]
#
# DIRECTORY is its root directory (tables are in DIRECTORY/db); without one the tables are gone when it stops. Ports are
# free ones unless given. `questdb.sh --install` only fetches it. QUESTDB_VERSION=9.4.0 takes another version, if the package
# registry has it: 9.4.0 and later write `_pm` themselves. Settings of the server go in as environment variables, as in
# QDB_CAIRO_PARTITION_ENCODER_PARQUET_ROW_GROUP_SIZE=1000.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=9.3.4
version=${QUESTDB_VERSION:-$version}
declare -A known=([9.3.4]=939bc53ab22f93dbaa6545143a6e7c536d4904c07b7f2d381e8eef10436be062)
jar="$cache/questdb-$version/questdb-$version.jar"

install_server() {
  [ -f "$jar" ] && return
  need mvn sha256sum
  local fetched
  mkdir -p "$cache"
  fetched=$(mktemp -d "$cache/fetch.XXXXXX")
  echo "fetching QuestDB $version (30 MB)" >&2
  mvn --quiet --batch-mode -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:2.8:copy \
    -Dartifact="org.questdb:questdb:$version" -DoutputDirectory="$fetched" >&2
  if [ -n "${known[$version]:-}" ]; then # of other versions Maven alone compares the checksum of its repository
    echo "${known[$version]}  $fetched/questdb-$version.jar" | sha256sum --check --quiet
  fi
  mkdir -p "$(dirname "$jar")"
  mv "$fetched/questdb-$version.jar" "$jar" # in one step, so that no process finds half a file
  rmdir "$fetched"
}

need java
begin_installed "$jar" "$@"
data_directory "${1:-}"
http_port=${2:-$(free_port)}
postgres_port=${3:-$(free_port)}

announce() {
  cat <<TEXT
QuestDB $version is ready; Ctrl-C stops it
  SQL         http://127.0.0.1:$http_port/exec?query=select+1
  console     http://127.0.0.1:$http_port
  PostgreSQL  postgresql://admin:quest@127.0.0.1:$postgres_port/qdb
  tables      $directory/db
TEXT
}

# Only loopback ports, nothing sent home, and memory for a small machine: the heap, and what the server takes outside it.
export QDB_HTTP_BIND_TO="127.0.0.1:$http_port" QDB_PG_NET_BIND_TO="127.0.0.1:$postgres_port"
export QDB_HTTP_MIN_ENABLED=false QDB_LINE_TCP_ENABLED=false QDB_TELEMETRY_ENABLED=false
export QDB_RAM_USAGE_LIMIT_BYTES="${QDB_RAM_USAGE_LIMIT_BYTES:-2147483648}"
export QDB_SHARED_WORKER_COUNT="${QDB_SHARED_WORKER_COUNT:-2}"
serve "$http_port" java -Xms64m -Xmx512m -XX:+UseSerialGC \
  --add-opens java.base/java.lang=ALL-UNNAMED --add-opens java.base/java.nio=ALL-UNNAMED \
  -p "$jar" -m io.questdb/io.questdb.ServerMain -d "$directory"

#!/usr/bin/env bash
# Fetch what Spark lacks to read and write Delta tables, and print the folder of the jars: delta_jars.sh
#
# Only the test of conversions needs them, which is left out where they were not fetched: `--is-installed` tells. Of Iceberg there is no build for Spark 4.3 yet: 1.12 is for Spark 4.1.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=4.4.0 # built for Spark 4.2; on 4.3 it writes, and reads what has a name
directory="$cache/delta-jars-$version"

install_jars() {
  [ -d "$directory" ] && return
  need mvn sha256sum
  local fetched artifact
  mkdir -p "$cache"
  fetched=$(mktemp -d "$cache/fetch.XXXXXX")
  echo "fetching Delta $version (13 MB)" >&2
  for artifact in delta-spark_2.13 delta-storage delta-kernel-api delta-kernel-defaults delta-kernel-unitycatalog; do
    mvn --quiet --batch-mode -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:2.8:copy \
      -Dartifact="io.delta:$artifact:$version" -DoutputDirectory="$fetched" >&2
  done
  (cd "$fetched" && sha256sum --check --strict --quiet -) <<'SUMS'
ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11  delta-kernel-api-4.4.0.jar
225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b  delta-kernel-defaults-4.4.0.jar
cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa  delta-kernel-unitycatalog-4.4.0.jar
27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead  delta-spark_2.13-4.4.0.jar
c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc  delta-storage-4.4.0.jar
SUMS
  mv "$fetched" "$directory" # in one step, so that no process finds half of them
}

if [ "${1:-}" = --is-installed ]; then
  [ -d "$directory" ]
  exit
fi
install_jars
[ "${1:-}" = --install ] || echo "$directory"

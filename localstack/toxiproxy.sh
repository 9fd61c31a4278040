#!/usr/bin/env bash
# Start toxiproxy in front of a server, to make its network bad: toxiproxy.sh [UPSTREAM] [PORT] [CONTROL_PORT]
#
# UPSTREAM is where the server listens, such as 127.0.0.1:9102; without one proxies are made over HTTP at the control port.
# Ports are free ones unless given. `toxiproxy.sh --install` only builds it, which takes about a minute on two cores, once.
set -euo pipefail
. "$(dirname "$0")/server.sh"

version=v2.5.0
toxiproxy="$cache/toxiproxy-$version/server"

install_server() { go_install "toxiproxy $version (about a minute)" "github.com/Shopify/toxiproxy/v2/cmd/server@$version" "$toxiproxy"; }

begin_installed "$toxiproxy" "$@"
need curl
data_directory ""
upstream=${1:-}
proxy_port=${2:-$(free_port)}
control_port=${3:-$(free_port)}

prepare() {
  [ -n "$upstream" ] || return 0
  curl -sS --fail-with-body -X POST "http://127.0.0.1:$control_port/proxies" >/dev/null \
    -d "{\"name\": \"store\", \"listen\": \"127.0.0.1:$proxy_port\", \"upstream\": \"$upstream\"}"
}

announce() {
  cat <<TEXT
toxiproxy is ready; Ctrl-C stops it
  control     http://127.0.0.1:$control_port
  proxy       http://127.0.0.1:$proxy_port -> ${upstream:-nothing yet}

  curl -X POST http://127.0.0.1:$control_port/proxies/store/toxics -d '{"type": "latency", "attributes": {"latency": 200}}'
  curl -X DELETE http://127.0.0.1:$control_port/proxies/store/toxics/latency_downstream
TEXT
}

serve "$control_port" "$toxiproxy" -host 127.0.0.1 -port "$control_port"

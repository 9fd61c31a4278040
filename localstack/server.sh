# What the scripts that start servers share. To be sourced, not run.

cache="${COLDPARQUET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coldparquet}"

# need COMMAND...: stop unless all of these are installed.
need() {
  local command
  for command in "$@"; do
    command -v "$command" >/dev/null || { echo "$0 needs '$command', which is not installed" >&2; exit 1; }
  done
}

free_port() {
  python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# end_with_parent ARGUMENT...: start this script again so that it gets SIGTERM when the process that started it ends,
# however that ends. Only Linux can do this; elsewhere a killed parent leaves the server running.
end_with_parent() {
  [ "${COLDPARQUET_SERVER_PARENT:-}" != "$PPID" ] && command -v setpriv >/dev/null || return 0
  COLDPARQUET_SERVER_PARENT=$PPID exec setpriv --pdeathsig TERM bash "$0" "$@"
}

# data_directory [DIRECTORY]: set `directory` to the one given, or to a temporary one that `serve` removes.
data_directory() {
  temporary=
  if [ -n "${1:-}" ]; then
    mkdir -p "$1"
    directory=$(cd "$1" && pwd)
  else
    temporary=$(mktemp -d)
    directory=$temporary
  fi
}

# serve PORT COMMAND...: run a server until it ends or Ctrl-C or SIGTERM comes. Calls `announce` when the port is open.
# The server dies with this script, even if that is killed. Its output goes to `log`, and to stderr when it fails.
serve() {
  local port=$1 status=0 stopped=
  shift
  command -v setpriv >/dev/null && set -- setpriv --pdeathsig TERM "$@"
  "$@" >"$log" 2>&1 </dev/null &
  local server=$!
  trap 'stopped=1; kill -TERM "$server" 2>/dev/null || true' INT TERM
  while kill -0 "$server" 2>/dev/null && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done
  if [ -z "$stopped" ] && kill -0 "$server" 2>/dev/null; then announce; fi
  while kill -0 "$server" 2>/dev/null; do wait "$server" || status=$?; done
  if [ -n "$stopped" ]; then status=0; else tail -n 40 "$log" >&2; fi
  [ -z "$temporary" ] || rm -rf "$temporary"
  return "$status"
}

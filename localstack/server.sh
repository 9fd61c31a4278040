# What the scripts that start servers share. To be sourced, not run.

# usage: print what a script says of itself in the comment at its top.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

case "${1:-}" in # the script's own first argument
  -h | --help) usage; exit ;;
  --install | --is-installed) ;;
  -*) { echo "$0 knows no option '$1'"; usage; } >&2; exit 2 ;;
esac

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

random_word() { od -An -N12 -tx1 /dev/urandom | tr -d ' \n'; }

# go_install NAME PACKAGE@VERSION FILE: build a program, unless FILE is there already.
go_install() {
  local name=$1 package=$2 file=$3 built
  [ -x "$file" ] && return
  need go
  mkdir -p "$cache"
  built=$(mktemp -d "$cache/build.XXXXXX")
  echo "building $name" >&2
  GOBIN="$built" nice -n 15 go install -trimpath -ldflags '-s -w' "$package" >&2
  mkdir -p "$(dirname "$file")"
  mv "$built"/* "$file" # in one step, so that no process finds half a file
  rmdir "$built"
}

# seed_bucket PORT ACCESS_KEY SECRET_KEY: where SEED_DAYS says so, put a table of so many days into s3://bucket/trades; its
# data goes to the storage class SEED_CLASS, where that is set.
seed_bucket() {
  [ -n "${SEED_DAYS:-}" ] || return 0
  AWS_ENDPOINT_URL="http://127.0.0.1:$1" AWS_ACCESS_KEY_ID="$2" AWS_SECRET_ACCESS_KEY="$3" AWS_REGION=us-east-1 \
    python3 "$(dirname "$0")/seed.py" s3://bucket/trades "$SEED_DAYS" ${SEED_CLASS:+"$SEED_CLASS"}
}

# begin_installed FILE ARGUMENT...: what a script does first whose server is built or fetched by its `install_server`. FILE is
# there when that was done. `--install` only does that; `--is-installed` tells, for tests that do without the server rather than build it.
begin_installed() {
  local file=$1
  shift
  case "${1:-}" in
    --install) install_server; exit ;;
    --is-installed) [ -e "$file" ]; exit ;;
  esac
  need python3
  end_with_parent "$@"
  install_server
}

# end_with_parent ARGUMENT...: start this script again so that it gets SIGTERM when the process that started it ends,
# however that ends. Only Linux can do this; elsewhere a killed parent leaves the server running.
end_with_parent() {
  case "${1:-}" in --install | --is-installed) exit ;; esac # of a script with nothing to install: it has what it needs
  [ "${COLDPARQUET_SERVER_PARENT:-}" != "$PPID" ] && command -v setpriv >/dev/null || return 0
  COLDPARQUET_SERVER_PARENT=$PPID exec setpriv --pdeathsig TERM bash "$0" "$@"
}

# data_directory [DIRECTORY]: set `directory` to the one given, or to a temporary one that `serve` removes; the server's output
# goes to `log` in there.
data_directory() {
  temporary=
  if [ -n "${1:-}" ]; then
    mkdir -p "$1"
    directory=$(cd "$1" && pwd)
  else
    temporary=$(mktemp -d)
    directory=$temporary
  fi
  log="$directory/server.log"
}

# serve PORT COMMAND...: run a server until it ends or Ctrl-C or SIGTERM comes. Calls `prepare`, where the script has one, and
# `announce` when the port is open.
# The server dies with this script, even if that is killed. Its output goes to `log`, and to stderr when it fails.
serve() {
  local awaited_port=$1 status=0 stopped=
  shift
  command -v setpriv >/dev/null && set -- setpriv --pdeathsig TERM "$@"
  "$@" >"$log" 2>&1 </dev/null &
  local server=$!
  trap 'stopped=1; kill -TERM "$server" 2>/dev/null || true' INT TERM
  while kill -0 "$server" 2>/dev/null && ! (exec 3<>"/dev/tcp/127.0.0.1/$awaited_port") 2>/dev/null; do sleep 0.1; done
  if [ -z "$stopped" ] && kill -0 "$server" 2>/dev/null; then
    if declare -F prepare >/dev/null; then prepare; fi
    announce
  fi
  while kill -0 "$server" 2>/dev/null; do wait "$server" || status=$?; done
  if [ -n "$stopped" ]; then status=0; else tail -n 40 "$log" >&2; fi
  [ -z "$temporary" ] || rm -rf "$temporary"
  return "$status"
}

# serve_s3 NAME PORT ACCESS_KEY SECRET_KEY COMMAND...: run an S3 server with a bucket `bucket`, which `make_bucket` makes, where the
# script has one. Fills it as `seed_bucket` says, and tells how to reach it.
serve_s3() {
  local name=$1 port=$2 access_key=$3 secret_key=$4
  shift 4
  prepare() {
    if declare -F make_bucket >/dev/null; then make_bucket; fi
    seed_bucket "$port" "$access_key" "$secret_key"
  }
  announce() {
    cat <<TEXT
$name is ready; Ctrl-C stops it
  endpoint    http://127.0.0.1:$port
  bucket      s3://bucket

  export AWS_ENDPOINT_URL=http://127.0.0.1:$port
  export AWS_ACCESS_KEY_ID=$access_key AWS_SECRET_ACCESS_KEY=$secret_key
TEXT
  }
  serve "$port" "$@"
}

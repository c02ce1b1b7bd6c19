# Minimal roots of other releases, and commands in them; to be sourced by a script that has set `suite` (bookworm, trixie or
# noble) and a function `usage`. Packages come from this machine's sources, with this machine's settings of apt. Needs root,
# mmdebstrap and room in ${TMPDIR:-/tmp}. Ends with 77, and the reason, where no root can be made.
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
skip() { echo "${0##*/}: skipped: $*" >&2; exit 77; }
case $suite in bookworm | trixie) vendor=debian ;; noble) vendor=ubuntu ;; *) usage ;; esac

work=$(mktemp -d "${TMPDIR:-/tmp}/meshplan-root-XXXXXX")
machine=$work/root
child=''
# What runs inside has mounts and processes of its own namespaces, which end with it: nothing is left to unmount.
clean_up() {
  [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
interrupted() { # interrupted EXIT_CODE
  echo "${0##*/}: stopped in '$current' after $((SECONDS - begin)) s; its last lines:" >&2
  tail -n 3 "$work/log" >&2 || true
  exit "$1"
}
current=start begin=0
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# ---------------------------------------------------------------- stages
# stage NAME COMMAND...: its output in $work/log; on failure the end of it
stage() {
  local name=$1 status=0
  current=$1 begin=$SECONDS
  shift
  "$@" >"$work/log" 2>&1 &
  child=$!
  wait "$child" || status=$?  # in the background, so that a signal is not kept waiting
  child=''
  printf '%-8s  %-42s  %5d s  %s\n' "$suite" "$name" $((SECONDS - begin)) "$([ $status -eq 0 ] || echo FAILED)"
  if [ $status -ne 0 ]; then
    tail -n "${lines_of_failure:-60}" "$work/log" >&2
    cp "$work/log" "${TMPDIR:-/tmp}/meshplan-root-$suite.log"
    echo "${0##*/}: all that it said: ${TMPDIR:-/tmp}/meshplan-root-$suite.log" >&2
  fi
  return $status
}

# bound: folders of this machine that commands inside see, read-only, each as FROM:TO
bound=()

# inside COMMAND: as root on the new machine, in the clone. Nothing of this environment but a proxy goes along.
inside() {
  local proxies=()
  for name in http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || proxies+=("$name=${!name}"); done
  exec unshare --mount --pid --fork --kill-child bash -c '
    set -e
    mount -t proc proc "$0/proc"
    mount --rbind /sys "$0/sys"
    mount --rbind /dev "$0/dev"
    mount -t tmpfs tmpfs "$0/dev/shm"
    for pair in $2; do mkdir -p "$0${pair#*:}"; mount --bind -o ro "${pair%%:*}" "$0${pair#*:}"; done
    exec chroot "$0" /usr/bin/env -i HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "${@:3}" \
      bash -c "cd /root/meshplan && $1"' "$machine" "$1" "${bound[*]}" "${proxies[@]}"
}

# ---------------------------------------------------------------- sources and settings of apt
# This machine's sources of its own release, with the other release's name in them: of apt's two formats.
one_line_sources() { # one_line_sources HOST_SUITE
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE "s/^(deb .*[[:space:]])$1((-updates|-security)?[[:space:]].*)/\1$suite\2/p"
}
deb822_sources() { # deb822_sources HOST_SUITE
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$file" ] || sed '/^#/d' "$file" | awk -v host="$1" -v suite="$suite" '
      BEGIN { RS = ""; ORS = "\n\n" }
      $0 ~ "(^|\n)Suites:[^\n]*[ \t]" host "(-updates|-security)?([ \t\n]|$)" {
        gsub("[ \t]" host, " " suite); print }'
  done
}

# make_root [PACKAGES]: a minimal root in $machine, with PACKAGES, separated by commas, besides, and a clone of HEAD in it
make_root() {
  [ "$(id -u)" -eq 0 ] || skip "not root, which mounts and chroot need"
  for tool in mmdebstrap unshare git; do
    command -v $tool >/dev/null || skip "no $tool (Debian's package $([ $tool = unshare ] && echo util-linux || echo $tool))"
  done
  unshare --mount --pid --fork --kill-child true 2>/dev/null || skip "namespaces cannot be made here (unshare)"
  local host host_suite sources=() include=${1:-}
  local bootstrap=(unshare --mount --pid --fork --kill-child --mount-proc mmdebstrap --variant=apt --format=directory)
  host=$(. /etc/os-release && echo "$ID")
  host_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  apt-config dump | grep -E '^Acquire::(https?|ftp|Retries|ForceIPv|Check-)' >"$work/apt.conf" || true
  [ ! -s "$work/apt.conf" ] || bootstrap+=("--aptopt=$work/apt.conf")
  if [ "$host" = "$vendor" ] && [ -n "$host_suite" ]; then
    one_line_sources "$host_suite" >"$work/$suite.list" || true
    deb822_sources "$host_suite" >"$work/$suite.sources"
    for file in "$work/$suite.list" "$work/$suite.sources"; do [ ! -s "$file" ] || sources+=("$file"); done
    [ ${#sources[@]} -gt 0 ] || skip "apt has no sources of $host_suite to take those of $suite from"
    ! grep -q https: "${sources[@]}" || include+=,ca-certificates
  elif [ "$vendor" = ubuntu ]; then  # mmdebstrap knows where Ubuntu's archive is
    [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || skip "no key of Ubuntu's archive (package ubuntu-keyring)"
    bootstrap+=('--components=main,universe')
  fi
  [ -z "$include" ] || bootstrap+=("--include=${include#,}")
  lines_of_failure=5 stage "a minimal root${1:+ with ${1//,/, }}" "${bootstrap[@]}" "$suite" "$machine" \
    ${sources[@]+"${sources[@]}"} || skip "mmdebstrap could not make a root of $suite (its last lines are above)"
  [ ! -f /etc/hosts ] || cp /etc/hosts "$machine/etc/hosts"
  commit=$(git -C "$repository" rev-parse --short HEAD)
  stage "a clone of $commit" \
    git -c safe.directory='*' clone --quiet --depth 1 "file://$repository" "$machine/root/meshplan"
}

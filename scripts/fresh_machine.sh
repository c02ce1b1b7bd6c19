#!/usr/bin/env bash
# The first hour on a machine that has seen nothing of this project: makes a minimal root, copies a clone of HEAD into
# it, runs README.md's commands there as a newcomer would, and prints what each stage took.
#   scripts/fresh_machine.sh SUITE             bookworm, trixie or noble: ./demo.sh and ./test.sh (about an hour on 2 cores)
#   scripts/fresh_machine.sh SUITE --quick     only as far as a meshplan that answers README's first `plan`
#   scripts/fresh_machine.sh SUITE --changed   as --quick, where what decides it changed since the last success
# Successes stand in scripts/fresh_machine.tsv, each with a hash of the files of HEAD that decide it.
# Packages come from this machine's sources, with this machine's settings of apt. Needs root, mmdebstrap and 6 GiB in
# ${TMPDIR:-/tmp}. Exit code: 77, with the reason, where no root can be made.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { echo "usage: scripts/fresh_machine.sh bookworm|trixie|noble [--quick]" >&2; exit 2; }
skip() { echo "fresh_machine: skipped: $*" >&2; exit 77; }

suite=${1:-} form=${2:-}
case $suite in bookworm | trixie) vendor=debian ;; noble) vendor=ubuntu ;; *) usage ;; esac
case $form in '' | --quick | --changed) ;; *) usage ;; esac
[ $# -le 2 ] || usage

# Set-up, CMake, packaging and README's commands; not the CMake of tests and benches, which every build runs.
deciding() {
  git -C "$repository" ls-tree -r HEAD | grep -vE $'\t(tests|bench)/' |
    grep -E $'\t(.*CMakeLists.txt|CMakePresets.json|cmake/.*|scripts/(setup|fresh_machine).sh|(demo|test).sh)$'
  git -C "$repository" show HEAD:README.md | grep '^    '
}
hash=$(deciding | sha256sum | cut -c 1-16)
record=$repository/scripts/fresh_machine.tsv
if [ "$form" = --changed ]; then
  if known=$(grep "^$suite	[a-z]*	$hash	" "$record"); then
    echo "fresh_machine: nothing that decides it changed since the success of $(tail -n 1 <<<"$known" | cut -f 4)"
    exit 0
  fi
  form=--quick
fi
# Replaces the record of this suite and form.
note_success() {
  local kind=${form:+quick}
  kind=${kind:-whole}
  local others
  others=$(grep -v "^$suite	$kind	" "$record" || true)
  printf '%s\n' "$others" "$suite	$kind	$hash	$(date +%F)	$(git -C "$repository" rev-parse --short HEAD)	$SECONDS" |
    sed '/^$/d' >"$record"
}
[ "$(id -u)" -eq 0 ] || skip "not root, which mounts and chroot need"
for tool in mmdebstrap unshare git; do
  command -v $tool >/dev/null || skip "no $tool (Debian's package $([ $tool = unshare ] && echo util-linux || echo $tool))"
done
unshare --mount --pid --fork --kill-child true 2>/dev/null || skip "namespaces cannot be made here (unshare)"

work=$(mktemp -d "${TMPDIR:-/tmp}/meshplan-fresh-XXXXXX")
machine=$work/root
child=''
# What runs inside has mounts and processes of its own namespaces, which end with it: nothing is left to unmount.
clean_up() {
  [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
interrupted() { # interrupted EXIT_CODE
  echo "fresh_machine: stopped in '$current' after $((SECONDS - begin)) s; its last lines:" >&2
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
    cp "$work/log" "${TMPDIR:-/tmp}/meshplan-fresh-$suite.log"
    echo "fresh_machine: all that it said: ${TMPDIR:-/tmp}/meshplan-fresh-$suite.log" >&2
  fi
  return $status
}

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
    exec chroot "$0" /usr/bin/env -i HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "${@:2}" \
      bash -c "cd /root/meshplan && $1"' "$machine" "$1" "${proxies[@]}"
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

host=$(. /etc/os-release && echo "$ID")
host_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
bootstrap=(unshare --mount --pid --fork --kill-child --mount-proc mmdebstrap --variant=apt --format=directory)
apt-config dump | grep -E '^Acquire::(https?|ftp|Retries|ForceIPv|Check-)' >"$work/apt.conf" || true
[ ! -s "$work/apt.conf" ] || bootstrap+=("--aptopt=$work/apt.conf")
sources=()
if [ "$host" = "$vendor" ] && [ -n "$host_suite" ]; then
  one_line_sources "$host_suite" >"$work/$suite.list" || true
  deb822_sources "$host_suite" >"$work/$suite.sources"
  for file in "$work/$suite.list" "$work/$suite.sources"; do [ ! -s "$file" ] || sources+=("$file"); done
  [ ${#sources[@]} -gt 0 ] || skip "apt has no sources of $host_suite to take those of $suite from"
  ! grep -q https: "${sources[@]}" || bootstrap+=(--include=ca-certificates)
elif [ "$vendor" = ubuntu ]; then  # mmdebstrap knows where Ubuntu's archive is
  [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || skip "no key of Ubuntu's archive (package ubuntu-keyring)"
  bootstrap+=('--components=main,universe')
fi

# ---------------------------------------------------------------- what a newcomer does
lines_of_failure=5 stage "a minimal root" "${bootstrap[@]}" "$suite" "$machine" ${sources[@]+"${sources[@]}"} ||
  skip "mmdebstrap could not make a root of $suite (its last lines are above)"
[ ! -f /etc/hosts ] || cp /etc/hosts "$machine/etc/hosts"
stage "a clone of $(git -C "$repository" rev-parse --short HEAD)" \
  git -c safe.directory='*' clone --quiet --depth 1 "file://$repository" "$machine/root/meshplan"

if [ "$form" = --quick ]; then
  stage "scripts/setup.sh release meshplan" inside "scripts/setup.sh release meshplan"
  command=$(sed -n 's/^ *\(meshplan plan --model llama3-70b .*\)/\1/p' "$repository/README.md")
  [ -n "$command" ] || { echo "fresh_machine: README.md has no 'meshplan plan --model llama3-70b'" >&2; exit 1; }
  stage "${command%% --cluster*} ..." inside "PATH=\$PWD/build/release/cli:\$PATH && $command && test -s plan.json"
  cat "$work/log"
else
  stage ./demo.sh inside ./demo.sh
  tail -n 20 "$work/log"
  stage ./test.sh inside ./test.sh
  grep -E 'skipped:|tests passed|tests failed|Total Test time' "$work/log"
fi
printf '%-8s  %-42s  %5d s\n' "$suite" "from nothing" $SECONDS
note_success

#!/usr/bin/env bash
# The first hour on a machine that has seen nothing of this project: makes a minimal root, copies a clone of HEAD into
# it, runs README.md's commands there as a newcomer would, and prints what each stage took.
#   scripts/fresh_machine.sh SUITE             bookworm, trixie or noble: ./demo.sh and ./test.sh (about an hour on 2 cores)
#   scripts/fresh_machine.sh SUITE --quick     only as far as a meshplan that answers README's first `plan`
#   scripts/fresh_machine.sh SUITE --changed   as --quick, where what decides it changed since the last success
# Successes stand in scripts/fresh_machine.tsv, each with a hash of the files of HEAD that decide it.
# What it needs, and where packages come from: scripts/bare_root.sh. 6 GiB in ${TMPDIR:-/tmp}.
set -euo pipefail

usage() { echo "usage: scripts/fresh_machine.sh bookworm|trixie|noble [--quick]" >&2; exit 2; }
suite=${1:-} form=${2:-}
case $form in '' | --quick | --changed) ;; *) usage ;; esac
[ $# -le 2 ] || usage
source "$(dirname "${BASH_SOURCE[0]}")/bare_root.sh"

# Set-up, CMake, packaging and README's commands; not the CMake of tests and benches, which every build runs.
deciding() {
  git -C "$repository" ls-tree -r HEAD | grep -vE $'\t(tests|bench)/' |
    grep -E $'\t(.*CMakeLists.txt|CMakePresets.json|cmake/.*|scripts/(setup|fresh_machine|bare_root).sh|(demo|test).sh)$'
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
  printf '%s\n' "$others" "$suite	$kind	$hash	$(date +%F)	$commit	$SECONDS" |
    sed '/^$/d' >"$record"
}

# ---------------------------------------------------------------- what a newcomer does
make_root

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
  grep -E '\*\*\*Skipped|skipped:|tests passed|tests failed|Total Test time' "$work/log"
fi
printf '%-8s  %-42s  %5d s\n' "$suite" "from nothing" $SECONDS
note_success

#!/usr/bin/env bash
# Manual pages and completions of the command given as $1: whole, without warnings of the tools that
# are here, and tried in the shells that are here.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

missing() { echo "skipped: $1 (no $2)"; }

# --- manual pages: each command has one, each option of its help stands in it
mkdir man1
"$meshplan" man --out-dir man1 || fail "man --out-dir: exit code $?"
commands=$("$meshplan" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 10 ] || fail "commands of --help: $commands"
for command in $commands; do
  page=man1/meshplan-$command.1
  [ -f "$page" ] || { fail "no page of $command"; continue; }
  sed 's/\\-/-/g' "$page" >page.txt
  options=$("$meshplan" "$command" --help | grep -oE '^  (-., ?)?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+')
  for option in $options; do
    grep -qE -- "\\\\fB$option\\\\fR" page.txt || fail "$page: no $option"
  done
  sed 's/\\-/-/g' man1/meshplan.1 | grep -q "meshplan-$command (1)" || fail "meshplan.1: no $command"
done
check_output -F 0 ".TH MESHPLAN\\-PLAN 1" "$meshplan" man plan
check_output -F 2 "did you mean 'plan'" "$meshplan" man plann
check_output -F 2 "leave out 'plan'" "$meshplan" man plan --out-dir man1
check_output -F 1 "nowhere" "$meshplan" man --out-dir nowhere

for page in man1/*.1; do
  if command -v groff >/dev/null; then
    warnings=$(groff -man -ww -z "$page" 2>&1)
    [ -z "$warnings" ] || fail "groff $page: $warnings"
  fi
  if command -v mandoc >/dev/null; then
    warnings=$(mandoc -T lint -W warning "$page" 2>&1)
    [ -z "$warnings" ] || fail "mandoc $page: $warnings"
  fi
done
command -v groff >/dev/null || missing "warnings of groff" groff
command -v mandoc >/dev/null || missing "warnings of mandoc" mandoc
if command -v man >/dev/null; then
  text=$(MANWIDTH=80 LC_ALL=C man --warnings -l man1/meshplan-plan.1 2>warnings) || fail "man: $(cat warnings)"
  [ ! -s warnings ] || fail "man: $(cat warnings)"
  grep -q -- "-c, --cluster TEXT" <<<"$text" || fail "man shows no --cluster: $text"
else
  missing "man --warnings" man
fi

# --- bash. complete WORD...: what bash offers for the last word
"$meshplan" completion bash >completion.bash
source ./completion.bash
complete_words() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _meshplan
  printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"} | sed '/^$/d' | sort | tr '\n' ' '
}
offers() { # offers EXPECTED WORD...
  local found expected=$1
  shift
  found=$(complete_words "$@")
  [ "$found" = "$expected" ] || fail "bash offers '$found' for: $*"
}
touch plan.json plans.csv
offers "plan " meshplan pla
offers "man mesh models " meshplan m
offers "--zero --zero-shard-group " meshplan plan --ze
offers "full none selective " meshplan plan --tp 2 --recompute ""
offers "zb-h1 zb-v " meshplan plan --schedule zb
offers "llama3-70b llama3-8b llama3.1-405b llama3.1-70b llama3.1-8b llama3.2-1b llama3.2-3b " meshplan plan --model llama3
offers "llama3-70b llama3-8b llama3.1-405b llama3.1-70b llama3.1-8b llama3.2-1b llama3.2-3b " meshplan plan -m llama3
offers "dgx-a100 dgx-b200 dgx-b300 dgx-h100 dgx-h200 " meshplan simulate --cluster = dgx
offers "megatron-core megatron-core-no-overlap " meshplan plan --software megatron-core
offers "plan.json plans.csv " meshplan simulate pla
offers "plan.json plans.csv " meshplan plan --out pla
offers "plan.json plans.csv " meshplan simulate --tp = 2 --sp pla
offers "" meshplan plan --tp ""
offers "bash fish zsh " meshplan completion ""
offers "import " meshplan clusters imp
offers "nccl-tests nccl-topology " meshplan clusters import nccl

# --- zsh and fish
"$meshplan" completion zsh >_meshplan
"$meshplan" completion fish >meshplan.fish
if command -v zsh >/dev/null; then
  zsh -n _meshplan || fail "zsh: the script is wrong"
else
  missing "zsh" zsh
fi
if command -v fish >/dev/null; then
  fish_offers() { # fish_offers EXPECTED LINE
    local found
    found=$(fish -c "source meshplan.fish; complete -C '$2'" | cut -f 1 | sort | tr '\n' ' ')
    [ "$found" = "$1" ] || fail "fish offers '$found' for: $2"
  }
  fish_offers "plan " "meshplan pla"
  fish_offers "zb-h1 zb-v " "meshplan plan --schedule zb"
  fish_offers "llama3-70b llama3-8b llama3.1-405b llama3.1-70b llama3.1-8b llama3.2-1b llama3.2-3b " "meshplan plan --model llama3"
else
  missing "fish" fish
fi
check_output -F 2 "did you mean 'fish'" "$meshplan" completion fisch
check_output -F 2 "usage: meshplan completion bash|zsh|fish" "$meshplan" completion

finish

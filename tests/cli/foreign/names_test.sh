#!/usr/bin/env bash
# Names of files, and names in files, that would forge a line of output, colour it, or run.
# Usage: names_test.sh PATH_OF_meshplan
set -u
meshplan=$(realpath "$1")
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"

# As its reader's terminal gets it: no escape, no mark of direction, no line that a name began.
says_nothing_of_its_own() {  # ARGUMENTS...
  timeout -k 1 60 "$meshplan" "$@" >stdout 2>stderr
  local code=$?
  [ "$code" -le 3 ] || fail "$(printf '%q ' "$@"): exit code $code"
  if LC_ALL=C grep -aqP '\x1b|\xe2\x80\xae|^FORGED|\r' stdout stderr; then
    fail "$(printf '%q ' "$@"): a name reached the terminal: $(cat -v stdout stderr | head -5)"
  fi
}

make_plan plan.json --dp 1
"$meshplan" run plan.json --data text.txt --steps 1 --device cpu --checkpoint-dir saved \
  --checkpoint-every 1 >stdout 2>stderr || fail "no checkpoint: $(cat stderr)"

# --- names of files: there or not, whole or damaged
for name in $'red\e[31m' $'turned\xe2\x80\xae' $'first\nFORGED: done' $'over\rFORGED' 'run $(touch PWNED)'; do
  says_nothing_of_its_own simulate "$name.json" --cluster cpu-host
  says_nothing_of_its_own simulate --model "$name.json" --cluster cpu-host --dp 1
  says_nothing_of_its_own simulate plan.json --cluster "$name.json"
  says_nothing_of_its_own models "$name/config.json"
  says_nothing_of_its_own run plan.json --data "$name.txt" --steps 1 --device cpu
  says_nothing_of_its_own run plan.json --data text.txt --steps 1 --device cpu --resume "$name"
  says_nothing_of_its_own checkpoint inspect "$name"
  says_nothing_of_its_own compare plan.json "$name.log"
  says_nothing_of_its_own validate --table "$name.csv"
  says_nothing_of_its_own import "$name.sh"
  cp plan.json "$name.json"
  cp text.txt "$name.txt"
  cp -r saved "$name"
  echo '{' >"$name.bad.json"
  echo 'iteration 1 of nothing' >"$name.log"
  says_nothing_of_its_own simulate "$name.json" --cluster cpu-host --trace "$name.trace.json"
  says_nothing_of_its_own simulate "$name.bad.json" --cluster cpu-host
  says_nothing_of_its_own simulate --model "$name.bad.json" --cluster cpu-host --dp 1
  says_nothing_of_its_own models "$name.bad.json"
  says_nothing_of_its_own export "$name.json" --to deepspeed --cluster dgx-h100 --out "$name.out"
  says_nothing_of_its_own export "$name.json" --to slurm --out "$name.out" --force
  says_nothing_of_its_own run "$name.json" --data "$name.txt" --steps 1 --device cpu --checkpoint-dir "$name.saved"
  says_nothing_of_its_own run plan.json --data text.txt --steps 2 --device cpu --resume "$name"
  says_nothing_of_its_own checkpoint inspect "$name"
  says_nothing_of_its_own compare plan.json "$name.log" --cluster cpu-host
  echo damaged >"$name/index.json" 2>/dev/null
  says_nothing_of_its_own checkpoint inspect "$name"
  says_nothing_of_its_own simulate "near $name.json"  # whose neighbours are named
done
says_nothing_of_its_own simulate "firs.json"
expect 2 "argument 2: 'first.nFORGED.*: holds a line break; expected one line" "$meshplan" simulate $'first\nFORGED: x'
# What may have several lines: JSON, and values of variables.
expect 0 "step time" "$meshplan" simulate --model "$(printf '\n'; cat model.json)" --cluster cpu-host --dp 1 \
  --global-batch 4 --seq-len 32
expect 2 "no such file" "$meshplan" import none.sh --env $'A=1\nB=2'

# --- names in files
sed 's/"name": "[^"]*"/"name": "x\\ntouch PWNED #"/' plan.json >forged.json
expect 2 "forged.json: model: name: expected one printable line .* got 'x.ntouch PWNED #' .U.000A at byte 2.; nearest: 'x touch PWNED #'" \
  "$meshplan" export forged.json --to slurm --out out
[ -e out ] && fail "a refused plan left a folder"
sed 's/"model_type"/"_name_or_path": "a\\u202eb", "model_type"/' model.json >turned.json
expect 2 "turned.json: _name_or_path: expected one printable line" "$meshplan" models turned.json
sed 's/"workload"/"work\\nload": 1, "workload"/' plan.json >key.json
expect 2 "key.json: work.nload: unknown key; did you mean 'workload'" "$meshplan" simulate key.json

expect 2 "--name: expected one printable line" "$meshplan" calibrate --out here.json --name $'a\e[31m' --ranks 1

# --- a file's name in a command that is to be copied
expect 0 "meshplan simulate 'a ;b.json'" "$meshplan" plan --model tiny-llama --cluster cpu-host --gpus 2 \
  --global-batch 4 --seq-len 64 --out 'a ;b.json'

[ -n "$(find . -name 'PWNED*')" ] && fail "a name was run"
finish

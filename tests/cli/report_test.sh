#!/usr/bin/env bash
# meshplan report, of the command given as $1: what it writes, and what it says of wrong files.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }
# refused PATTERN ARGUMENTS...: bad input, and no page is left
refused() {
  rm -f page.html
  expect 2 "$1" report "${@:2}" --out page.html
  [ -z "$(ls page.html* 2>/dev/null)" ] || fail "$*: left $(ls page.html*)"
}

llama=(--model llama3-8b --cluster dgx-h100 --global-batch 32 --seq-len 4096)
"$meshplan" simulate "${llama[@]}" --tp 4 --sp --pp 2 --dp 2 --out plan.json --trace predicted.json >/dev/null || fail "no plan.json"
python3 -c 'import json; t = json.load(open("predicted.json")); t["measured"] = True
t["step_times_s"] = 5 * [1.1 * t["step_times_s"][0]]; json.dump(t, open("measured.json", "w"))
t["plan"]["micro_batch_size"] = 2; del t["plan"]["prediction"]; json.dump(t, open("other.json", "w"))
json.dump({"traceEvents": []}, open("chrome.json", "w"))'
head -c 100000 measured.json >truncated.json
: >empty.json

expect 0 "page.html  " report plan.json --out page.html
grep -q '^<!doctype html>' page.html || fail "no page"
expect 0 " predicted, " report plan.json --measured measured.json --out page.html
expect 0 "of the 16 micro-batches" report plan.json --bars 10000 --out page.html
expect 0 "No timeline" report plan.json --bars 0 --out page.html
expect 3 "page.html  " report plan.json --set device.memory_gib=20 --out page.html

# The same bytes each time, and the numbers of simulate.
"$meshplan" report plan.json --measured measured.json --out again.html >/dev/null
"$meshplan" report plan.json --measured measured.json --out page.html >/dev/null
cmp -s page.html again.html || fail "two pages of one plan differ"
"$meshplan" report plan.json --json >page.json
"$meshplan" simulate plan.json --json >simulated.json
python3 -c 'import json
page, simulated = json.load(open("page.json"))["simulation"], json.load(open("simulated.json"))
del simulated["plan"]
assert page == simulated' || fail "the page's figures are not those of simulate"

refused "report needs a plan's file"
refused "measured: false, expected true" plan.json --measured predicted.json
refused "other.json: plan.micro_batch_size: 2, expected 1 as in plan.json" plan.json --measured other.json
refused "truncated.json:1:" plan.json --measured truncated.json
refused "empty.json:1:1: " plan.json --measured empty.json
refused "chrome.json: " plan.json --measured chrome.json
refused "plan.json: " plan.json --measured plan.json
refused "mesured.json: no such file; near it: measured.json" plan.json --measured mesured.json
refused "measured.json: " measured.json
refused "needs every operation" plan.json --software megatron-core --measured measured.json
# --- of other software, which has no operations
expect 0 "other.html  " report plan.json --software megatron-core --out other.html
"$meshplan" report plan.json --software megatron-core --json >other_page.json
"$meshplan" simulate plan.json --software megatron-core --json >other_simulated.json
cmp -s other_page.json other_simulated.json || fail "the page of other software does not say what simulate says"
grep -q "Predicted as runs of" other.html || fail "the page of other software holds no script"
refused "--bars" plan.json --bars -1
refused "1048576" plan.json --bars 2000000
expect 2 "report needs a plan's file and where to write" report plan.json
check_output -F 1 "there is no folder nowhere" "$meshplan" report plan.json --out nowhere/page.html
finish

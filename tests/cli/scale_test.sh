#!/usr/bin/env bash
# meshplan scale and strategies, and simulate --communication, of the command given as $1: what they
# print and write, and what they say of wrong input.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }
# refused PATTERN ARGUMENTS...: bad input, and no page is left
refused() {
  rm -f page.html
  expect 2 "$1" scale "${@:2}" --out page.html
  [ -z "$(ls page.html* 2>/dev/null)" ] || fail "$*: left $(ls page.html*)"
}
# python CODE: with what must hold of the files here
python() { python3 -c "import csv, json
$1" || fail "$2"; }

llama=(--model llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096)
"$meshplan" simulate "${llama[@]}" --tp 4 --sp --dp 2 --zero 1 --out plan.json >/dev/null || fail "no plan.json"

# --- one plan along an axis
expect 0 "strong scaling over dp" scale plan.json --axis dp --to 64 --out page.html --csv points.csv
grep -q "Karp-Flatt" stdout || fail "no Karp-Flatt"
grep -q "iso-efficiency" stdout || fail "no iso-efficiency"
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' stdout)" -le 100 ] || fail "more than 100 columns: $(awk 'length($0) > 100' stdout)"
grep -q '^<!doctype html>' page.html || fail "no page"
"$meshplan" scale plan.json --axis dp --to 64 --json >curve.json || fail "no JSON"
"$meshplan" scale plan.json --axis dp --to 64 --no-iso-efficiency --json -j 1 >serial.json
"$meshplan" simulate plan.json --json >simulated.json
"$meshplan" scale --schema >schema.json
python '
curve, simulated, rows = json.load(open("curve.json")), json.load(open("simulated.json")), list(csv.DictReader(open("points.csv")))
assert [one["devices"] for one in curve["points"]] == [8, 16, 32, 64] == [int(row["devices"]) for row in rows]
first = curve["points"][0]["step"]
assert first["step_time_s"] == simulated["step_time_s"] and first["interval_80_s"] == simulated["interval_80_s"]
assert first["peak_memory_bytes"] == simulated["peak_memory_bytes"] and first["efficiency"] == 1
for one, row in zip(curve["points"], rows):
    assert one["valid"] and float(row["step_time_s"]) == one["step"]["step_time_s"]
    assert abs(sum(part["seconds"] for part in one["step"]["parts"]) / one["step"]["step_time_s"] - 1) < 1e-9
for one in curve["points"]: one["step"]["iso_batch"] = None
serial = json.load(open("serial.json"))
assert serial["points"] == curve["points"], "threads and iso-efficiency change no point"
assert set(curve) == set(json.load(open("schema.json"))["properties"])' "curve.json"

# --- points without a plan stay, with the rule
expect 0 "num_heads" scale plan.json --axis tp --to 256
expect 0 "no plan" scale "${llama[@]}" --tp 2 --axis tp --to 12
expect 0 "weak scaling over cp: the sequence length grows" scale "${llama[@]}" --tp 4 --sp --axis cp --weak --to 8 --from 4
expect 3 "does not fit" scale --model llama3-70b --cluster dgx-h100 --global-batch 8 --seq-len 4096 --axis dp --to 2

# --- the best plan of each size
expect 0 "best plans" scale --model gpt2-124m --cluster dgx-h100 --global-batch 64 --from 1 --to 4
expect 0 "of the best plan of each size" scale --model gpt2-124m --cluster dgx-h100 --global-batch 64 --from 1 --to 2 --weak

# --- measured points
python '
curve = json.load(open("curve.json"))
with open("measured.csv", "w") as out:
    out.write("devices,step_time_s\n")
    for one in curve["points"]: out.write("%d,%r\n" % (one["devices"], one["step"]["step_time_s"] * 1.02))
    out.write("24,1.0\n")' "measured.csv"
expect 0 "measured (measured.csv)" scale plan.json --axis dp --to 64 --measured measured.csv --no-iso-efficiency
grep -qE "^ +24 .*no plan" stdout || fail "no point of 24 devices"
printf 'devices,step_tme_s\n8,1\n' >typo.csv
printf 'devices,step_time_s\n8,1\n\n16,fast\n' >word.csv
printf 'devices,tokens_per_s\n24,1e6\n' >unknown.csv
refused "typo.csv:1: unknown column 'step_tme_s'; did you mean 'step_time_s'" plan.json --axis dp --measured typo.csv
refused "word.csv:4: column step_time_s: 'fast', expected" plan.json --axis dp --measured word.csv
refused "unknown.csv: tokens_per_s of 24 devices" plan.json --axis dp --measured unknown.csv
refused "mesured.csv: no such file; near it: " plan.json --axis dp --measured mesured.csv

# --- wrong requests
refused "scale needs a plan and an axis, or a model"
refused "plan.json: along which axis?" plan.json
refused "dp" plan.json --axis dpp
refused "--strong and --weak" plan.json --axis dp --strong --weak
refused "--to 4: less than the first size, which is 8" plan.json --axis dp --to 4
refused "--efficiency" plan.json --axis dp --efficiency 0
refused "--tp" plan.json --axis dp --tp 2
check_output -F 1 "there is no folder nowhere" "$meshplan" scale plan.json --axis dp --csv nowhere/points.csv

# --- strategies
expect 0 "fastest  " strategies --model gpt2-124m --cluster dgx-h100 --gpus 8 --global-batch 64
grep -qE "^tp +no plan: .*num_heads" stdout || fail "tp of 12 heads on 8 ranks"
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' <(sed -n '/^strategy/,$p' stdout))" -le 100 ] || fail "more than 100 columns"
"$meshplan" strategies --model gpt2-124m --cluster dgx-h100 --gpus 8 --global-batch 64 --json >strategies.json 2>/dev/null
"$meshplan" strategies --schema >schema.json
python '
answer = json.load(open("strategies.json"))
by_name = {one["name"]: one for one in answer["strategies"]}
assert set(answer) == set(json.load(open("schema.json"))["properties"])
assert by_name[answer["fastest"]]["step_time_s"] == min(one["step_time_s"] for one in by_name.values() if one["fits"])
sent = {name: by_name[name]["bytes_sent"] for name in ("dp", "dp + ZeRO-1")}
assert abs(sent["dp + ZeRO-1"] / sent["dp"] - 0.75) < 0.01, sent  # gradients in fp32, gathered weights in bf16' "strategies.json"
expect 2 "--tp: strategies fixes this itself" strategies --model gpt2-124m --cluster dgx-h100 --gpus 8 --global-batch 64 --tp 2
expect 3 "nothing fits" strategies --model llama3-70b --cluster dgx-h100 --gpus 2 --global-batch 8 --seq-len 4096

# --- what is sent
expect 0 "reduce_scatter" simulate plan.json --communication
"$meshplan" simulate plan.json --communication --json >simulated.json
python '
simulated = json.load(open("simulated.json"))
rows = simulated["communication"]["rows"]
exposed = sum(row["exposed_s"] for row in rows)
assert rows and all(row["operation"] and row["sent_bytes"] > 0 for row in rows)
stage = simulated["stages"][0]["breakdown_s"]
assert abs(exposed - sum(stage[kind] for kind in ("tp", "sp", "cp", "ep", "pp", "dp"))) < 1e-9' "simulated.json"
expect 2 "--communication: needs every operation" simulate plan.json --communication --software megatron-core
finish

#!/usr/bin/env bash
# `meshplan certify` as its user sees it: exit codes, tables, the certificate. Usage: certify_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
source "$tests/tiny_training.sh"

# --- a plan of many ranks in bf16, and one whose techniques need several twins
"$meshplan" simulate --model llama3-8b --cluster dgx-h100 --tp 4 --sp --pp 2 --dp 8 --zero 1 --global-batch 64 \
  --seq-len 4096 --out large.json >stdout 2>stderr || fail "no plan: $(cat stderr)"
expect 0 "verdict     agrees: " "$meshplan" certify large.json --out certificate.json
grep -q "running 1 twin on up to 8 ranks" stderr || fail "no progress on stderr"
grep -q "in fp32: the layout, not what bf16 rounds" stdout || fail "the precision is not said"
grep -Eq "programs    of the plan itself, 2 stages: [0-9,]+ operations a step, each reads what" stdout ||
  fail "the plan's own programs are not proven"
python3 - <<'PY' || fail "the certificate lacks what it is to carry"
import json, sys
c = json.load(open("certificate.json"))
twin = c["twins"][0]
kinds = {figure["what"] for figure in twin["compared"]}
sys.exit(not (c["verdict"] == "agrees" and c["plan_precision"] == "bf16" and c["compared_in"] == "fp32"
              and len(c["plan_hash"]) == 16 and c["meshplan_version"] and c["not_shown"] and not c["uncovered"]
              and twin["plan"]["parallel"] == {"tp": 2, "cp": 1, "pp": 2, "vpp": 1, "dp": 2, "ep": 1, "etp": 1, "sp": True}
              and twin["plan"]["zero_stage"] == 1 and {"tp", "sp", "pp", "dp", "zero1"} <= set(twin["techniques"])
              and kinds == {"loss", "gradient norm", "gradient", "update", "message", "copies"}
              and sum(f["checked"] for f in twin["compared"] if f["what"] == "message") > 1000
              and c["schema_version"] == 3
              and all(figure["difference"] <= figure["tolerance"] for figure in twin["compared"])
              and twin["tolerance"]["derivation"]))
PY
expect 0 "certificate.json" "$meshplan" export large.json --to megatron --certificate certificate.json --out exported
cmp -s certificate.json exported/certificate.json || fail "export carries another certificate"
grep -q "## Certificate" exported/README.md || fail "the exported README does not speak of its certificate"
make_plan tp2.json --tp 2
expect 2 "is another plan's" "$meshplan" export tp2.json --to megatron --certificate certificate.json --out other
python3 - <<'PY'
import json
c = json.load(open("certificate.json"))
c["schema_version"] = 1
for twin in c["twins"]:
    twin["compared"] = [f for f in twin["compared"] if f["what"] not in ("message", "copies")]
    for figure in twin["compared"]: del figure["checked"]
json.dump(c, open("first.json", "w"))
PY
expect 0 "certificate.json" "$meshplan" export large.json --to megatron --certificate first.json --out exported_first
sed 's/"agrees": true/"agrees": false/; s/"difference": [0-9.e-]*/"difference": 9/' certificate.json >differs.json
expect 2 "verdict: the plan's layout changes" "$meshplan" export large.json --to megatron --certificate differs.json --out other
expect 2 "broken.json" "$meshplan" export large.json --to megatron --certificate broken.json --out other
[ ! -e other ] || fail "a refused export leaves a folder"
expect 0 '"verdict": "agrees"' "$meshplan" certify tp2.json --json
expect 0 "verdict     agrees" "$meshplan" certify tp2.json --own-precision

# --- on what it ran; a GPU that is not there is refused at once, as by run
grep -q "^twins on    cpu " stdout || fail "the device of the twins is not said: $(cat stdout)"
"$meshplan" certify large.json >stdout 2>stderr
grep -q "^one rank on cpu .*, in fp32$" stdout || fail "the device of the one rank is not said"
python3 - <<'PY' || fail "the certificate names no device, or not its furthest gradient"
import json, sys
c = json.load(open("certificate.json"))
gradients = [f for f in c["twins"][0]["compared"] if f["what"] == "gradient"]
most = max(gradients, key=lambda f: f["difference"] / f["tolerance"])
sys.exit(not (c["twins"][0]["device"].startswith("cpu ") and c["twins"][0]["reference"] == c["twins"][0]["device"]
              and c["twins"][0]["reference_precision"] == "fp32"
              and c["furthest_gradient"] == {"twin": 1, **most}
              and all(f["tolerance"] <= 1e-5 for f in gradients)))
PY
make_plan one.json
expect 0 "verdict     agrees" "$meshplan" certify one.json
if ! ls /dev/nvidia* >/dev/null 2>&1; then
  for command in certify run; do
    expect 2 "--device cuda: no GPU: " "$meshplan" $command one.json --device cuda
    cp stderr $command.stderr
  done
  cmp -s certify.stderr run.stderr || fail "certify and run refuse differently: $(cat certify.stderr run.stderr)"
fi

# --- the same plan in other white space has the same hash, another plan another one
hash_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["plan_hash"])' "$1"; }
python3 -c 'import json; json.dump(json.load(open("tp2.json")), open("dense.json", "w"))'
sed 's/"micro_batch_size": 1/"micro_batch_size": 2/' tp2.json >other.json
for plan in tp2 dense other; do
  "$meshplan" certify $plan.json --json >certificate-$plan.json 2>stderr || fail "$plan.json does not agree: $(cat stderr)"
done
[ "$(hash_of certificate-tp2.json)" = "$(hash_of certificate-dense.json)" ] || fail "white space changes the hash"
[ "$(hash_of certificate-tp2.json)" != "$(hash_of certificate-other.json)" ] || fail "two plans have one hash"

# --- bad input
expect 2 "which plan\?" "$meshplan" certify
expect 2 "none.json: no such file" "$meshplan" certify none.json
echo '{' >broken.json
expect 2 "not valid JSON" "$meshplan" certify broken.json
sed 's/"tp": 2/"tp": 3/' tp2.json >illegal.json
expect 2 "not divisible by tp" "$meshplan" certify illegal.json
expect 1 "there is no folder missing" "$meshplan" certify tp2.json --out missing/certificate.json
expect 2 "did you mean '--own-precision'" "$meshplan" certify tp2.json --own-precison

finish

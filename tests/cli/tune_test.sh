#!/usr/bin/env bash
# `meshplan tune` as its user sees it: a measured best, its folder, what resumes and what is refused.
# Usage: tune_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
source "$tests/tiny_training.sh"
small=("$meshplan" tune --model model.json --gpus 2 --global-batch 4 --steps 2)
search=("${small[@]}" --data text.txt --rounds 1)
tune=("${search[@]}" --cluster cpu-host --seq-len 32)

# --- a tune that ends well: its plan was measured and runs
expect 0 "chosen   #[12] " "${tune[@]}" --folder two --top 2 --out best.json
expect 0 "" "$meshplan" run best.json --data text.txt --steps 2
python3 - <<'PY' || fail "the folder or the plan does not say what was measured"
import json, sys
plan = json.load(open("best.json"))
kept = json.load(open("two/tune.json"))["candidates"]
ran = [c for c in kept if c["rounds"]]
sys.exit(not (plan["prediction"]["step_time_s"] > 0 and len(ran) == 2 and len(kept) > 2
              and plan["prediction"]["reasons"][0].startswith("measured by meshplan tune: ")
              and any(c["plan"]["parallel"] == plan["parallel"] for c in ran)
              and all(c["rounds"][0]["step_times_s"] for c in ran)))
PY
ls two | grep -q scratch && fail "scratch files are left: $(ls two)"

# --- the same command takes over what was measured, and says so; what is not of the tune stays
echo mine >two/scratch-pad.txt
cp two/tune.json before.json
expect 0 "2 runs taken over from before" "${tune[@]}" --folder two --top 2
cmp -s before.json two/tune.json || fail "a resumed tune measured again, or forgot"
expect 0 '"runs_taken_over": 2' "${tune[@]}" --folder two --top 2 --json
python3 - <<'PY' || fail "--json calls something measured that is not"
import json, sys
answer = json.load(open("stdout"))
states = {plan["state"] for plan in answer["plans"]}
chosen = [plan for plan in answer["plans"] if plan["chosen"]]
sys.exit(not (answer["complete"] and states == {"measured", "not measured"} and len(chosen) == 1
              and chosen[0]["state"] == "measured" and chosen[0]["plan"] == answer["chosen"]
              and all(("measured_step_time_s" in p) == (p["state"] == "measured") for p in answer["plans"])
              and len([p for p in answer["plans"] if p["choice_of_search"]]) == 1
              and answer["stopped"] in ("top_reached", "settled") and answer["learned"]["terms"]))
PY
expect 0 "3 of 3|stopped" "${tune[@]}" --folder two --top 3
[ -f two/scratch-pad.txt ] || fail "a file of another is gone: $(ls two)"

# --- when the time is over, the run that is under way is ended, and the answer says so
longer=("$meshplan" tune --model model.json --gpus 2 --global-batch 4 --cluster cpu-host --seq-len 32
  --data text.txt --steps 10000000 --json)
expect 1 "no plan was measured in --most-seconds 2; with more the same command goes on" \
  "${longer[@]}" --rounds 1 --most-seconds 2 --folder short
[ -z "$(ranks)" ] || fail "ranks outlive the limit: $(ps -o pid=,args= -p "$(ranks | paste -sd,)")"
ls short | grep -qE "scratch|tmp" && fail "something half-written is left: $(ls short)"
python3 - <<'PY' || fail "it is not said what the time was not enough for: $(cat stdout)"
import json, sys
answer = json.load(open("stdout"))
cut = [plan["cut_short"] for plan in answer["plans"]]
sys.exit(not (answer["stopped"] == "time_used" and answer["seconds_used"] >= 2 and answer["chosen"] is None
              and {plan["state"] for plan in answer["plans"]} == {"not measured"} and cut.count(True) == 1
              and f"{len(cut)} plans not measured" in answer["stopped_because"]))
PY
# What was measured before is chosen from.
used=$(python3 -c 'import json; print(json.load(open("two/tune.json"))["seconds_used"])')
expect 0 '"stopped": "time_used"' "${longer[@]}" --rounds 5 --top 2 --folder two \
  --most-seconds "$(python3 -c "print($used + 2)")" --out limited.json
[ -z "$(ranks)" ] || fail "ranks outlive the limit: $(ps -o pid=,args= -p "$(ranks | paste -sd,)")"
python3 - <<'PY' || fail "a limit of time loses what was measured: $(cat stdout)"
import json, sys
answer = json.load(open("stdout"))
ran = [plan for plan in answer["plans"] if plan["state"] == "measured"]
sys.exit(not (sum(plan["rounds"] for plan in ran) == answer["runs_taken_over"] >= 2
              and answer["chosen"] in [plan["plan"] for plan in ran]
              and [plan["cut_short"] for plan in answer["plans"]].count(True) == 1
              and json.load(open("limited.json"))["prediction"]["reasons"]))
PY

# --- another request needs another folder
expect 2 "request.seq_len: '32' there, '16' asked for" "${search[@]}" --cluster cpu-host --seq-len 16 --folder two
expect 2 "request.tp: '' there, '2' asked for" "${tune[@]}" --tp 2 --folder two
mkdir foreign && touch foreign/notes.txt
expect 2 "foreign: holds files, but no tune.json" "${tune[@]}" --folder foreign
expect 1 "no folder|cannot be written" "${tune[@]}" --folder missing/folder

# --- broken input
cp two/tune.json kept.json
sed -i 's/"seconds_used"/"seconds_usde"/' two/tune.json
expect 2 "two/tune.json: .*seconds_used" "${tune[@]}" --folder two
head -c 300 kept.json >two/tune.json
expect 2 "two/tune.json.* not valid JSON" "${tune[@]}" --folder two
expect 2 "none.txt: no such file" "${small[@]}" --cluster cpu-host --seq-len 32 --folder no-data --data none.txt
expect 2 "tune runs plans" "${tune[@]}" --folder other --software torchtitan
expect 2 "tune measures the machine as it is" "${tune[@]}" --folder other --set flops=2
expect 2 "most-seconds" "${tune[@]}" --folder other --most-seconds 0
expect 2 "model is missing" "$meshplan" tune --folder other --gpus 2
expect 3 "" "${tune[@]}" --folder full --memory-reserve 99.9999

# --- a plan that cannot be run is left out, with its cause; if none can, that is the answer
real=$(command -v mpiexec)
mkdir bin
cat >bin/mpiexec <<'SH'
#!/bin/sh
case "$*" in *FAILING*) echo "BAD TERMINATION"; echo "meshplan: rank 1: no memory left" >&2; exit 1 ;; esac
SH
echo "exec $real \"\$@\"" >>bin/mpiexec
chmod +x bin/mpiexec
sed -i 's/FAILING/plan-01.json/' bin/mpiexec
PATH=$PWD/bin:$PATH expect 0 "failed   #[0-9]+ .*: rank 1: no memory left" "${tune[@]}" --folder failing --top 1
grep -q "which failed" stdout || fail "it is not said that the search's own choice failed"
PATH=$PWD/bin:$PATH expect 0 '"state": "failed"' "${tune[@]}" --folder failing-json --top 1 --json
python3 -c 'import json; json.load(open("stdout"))' || fail "what mpiexec prints is part of the JSON: $(cat stdout)"
sed -i 's/plan-01.json/run/' bin/mpiexec
PATH=$PWD/bin:$PATH expect 1 "no plan could be run; .*: rank 1: no memory left" "${tune[@]}" --folder all-fail --top 1

# --- interrupted: the job ends, the best so far is said, and the same command goes on
"${small[@]}" --cluster cpu-host --seq-len 32 --data text.txt --folder stopped --rounds 200 --top 2 >stdout 2>stderr &
job=$!
for _ in $(seq 600); do
  grep -q '"turn": 1' stopped/tune.json 2>/dev/null && break
  sleep 0.1
done
kill -TERM $job
wait $job
code=$?
[ $code -eq 130 ] || fail "interrupted: exit code $code: $(cat stdout stderr)"
grep -q "^incomplete: " stdout || fail "an interrupted tune does not say that it is incomplete: $(cat stdout stderr)"
grep -q "chosen   #" stdout || fail "an interrupted tune does not say the best so far"
for _ in $(seq 300); do [ -z "$(ranks)" ] && break || sleep 0.2; done
[ -z "$(ranks)" ] || fail "ranks are left over"
ls stopped | grep -qE "scratch|tmp" && fail "something half-written is left: $(ls stopped)"
expect 0 "runs? taken over from before" "${tune[@]}" --folder stopped --top 2

# --- without a cluster it calibrates first, and keeps the cluster
cat >bin/mpiexec <<SH
#!/usr/bin/env bash
words=("\$@")  # measures for a tenth of the time
for i in "\${!words[@]}"; do
  case \${words[i]} in
    --communication-seconds) words[i + 1]=0.4 ;;
    --seconds-per-operator) words[i + 1]=0.0005 ;;
  esac
done
exec $real "\${words[@]}"
SH
PATH=$PWD/bin:$PATH timeout -k 1 240 "${search[@]}" --seq-len 32 --tp 2 --micro-batch 1 --folder measured --top 1 >stdout 2>stderr ||
  fail "no tune without a cluster: $(cat stdout stderr)"
grep -q '"operators"' measured/cluster.json || fail "the calibrated cluster is not kept"
expect 0 "1 run taken over" "${search[@]}" --seq-len 32 --tp 2 --micro-batch 1 --folder measured --top 1

finish

#!/usr/bin/env bash
# Checkpoints as a user sees them: resume, retention, SIGTERM, kill -9 at random moments, damage.
# Usage: checkpoint_test.sh PATH_OF_meshplan [KILLS]
set -u
meshplan=$1
kills=${2:-20}
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"

losses() {  # losses NAME ARGUMENTS...: runs it and keeps what it says in losses/NAME.json
  "$meshplan" run "${@:2}" --data text.txt --json >"losses/$1.json" 2>stderr || fail "$*: $(cat stderr)"
}
mkdir losses

make_plan one.json
make_plan pp2.json --pp 2
make_plan tp2.json --tp 2
make_plan dp2.json --dp 2

# --- save, resume, retention
losses whole pp2.json --steps 8 --seed 3
expect 0 "checkpoints in .*a every 2 steps, by way of [0-9.]+ MiB of host memory" "$meshplan" run \
  pp2.json --data text.txt --steps 8 --seed 3 --checkpoint-dir a --checkpoint-every 2 --keep 3
[ "$(ls a)" = "$(printf 'step-4\nstep-6\nstep-8')" ] || fail "retention: $(ls a)"
cp -r a b
rm -rf a/step-6 a/step-8
losses same_plan pp2.json --steps 8 --checkpoint-dir a --resume latest
[ -d a/step-8 ] || fail "no final checkpoint: $(ls a)"
for plan in one tp2 dp2; do
  losses "$plan" "$plan.json" --steps 8 --resume b/step-4 --checkpoint-dir "to-$plan"
done
python3 - <<'PY' || fail "resumed losses are not those of the whole run: $(tail losses/*)"
import json, sys
def losses(name):
    return json.load(open(f"losses/{name}.json"))["losses"]
def off(name):
    resumed = losses(name)
    assert len(resumed) == 4, (name, resumed)
    return max(abs(a - b) for a, b in zip(losses("whole")[4:], resumed))
sys.exit(not (off("same_plan") == 0 and all(off(plan) <= 2e-5 for plan in ("one", "tp2", "dp2"))))
PY
expect 0 "^step +8" "$meshplan" checkpoint inspect b
expect 0 '"step": 4,' "$meshplan" checkpoint inspect b/step-4 --json
expect 0 "weights of .*step-8" "$meshplan" run tp2.json --data text.txt --steps 2 --init-from b

# --- refused before any rank starts
expect 2 "resume.* or --init-from" "$meshplan" run pp2.json --data text.txt --resume b --init-from b
expect 0 "^all 8 steps are done: b/step-8$" "$meshplan" run pp2.json --data text.txt --steps 8 --resume b
expect 2 "seed is 3 so far, but 4 now .*: use --seed 3" "$meshplan" run pp2.json --data text.txt --seed 4 \
  --steps 9 --decay-steps 8 --resume b
expect 2 "checkpoints of another run, up to step 8" "$meshplan" run pp2.json --data text.txt \
  --steps 9 --decay-steps 8 --checkpoint-dir b
expect 2 "newer than the one of step 4" "$meshplan" run pp2.json --data text.txt --resume b/step-4
expect 2 "is other data" "$meshplan" run pp2.json --data model.json --steps 9 --decay-steps 8 --resume b
expect 2 "--eval-every must hold out the same as before \(0\)" "$meshplan" run pp2.json \
  --data text.txt --steps 9 --decay-steps 8 --resume b --eval-every 2
expect 2 "none: holds no complete checkpoint|none: no such" "$meshplan" run pp2.json \
  --data text.txt --resume none
expect 2 "unknown action 'inspct'; did you mean 'inspect'" "$meshplan" checkpoint inspct b
sed 's/"hidden_size": 64/"hidden_size": 32/' model.json >narrow.json
"$meshplan" simulate --model narrow.json --cluster cpu-host --global-batch 4 --seq-len 32 \
  --out narrow_plan.json >/dev/null
expect 2 "hidden_size is 64, but 32 in the plan" "$meshplan" run narrow_plan.json --data text.txt \
  --steps 9 --decay-steps 8 --resume b

# --- damage
cp -r b damaged
printf 'x' | dd of=damaged/step-8/rank-00001.safetensors bs=1 seek=40000 conv=notrunc 2>/dev/null
expect 2 "is damaged; the newest intact one is .*damaged/step-6" "$meshplan" run pp2.json \
  --data text.txt --steps 9 --decay-steps 8 --resume damaged
truncate -s -10 damaged/step-8/rank-00000.safetensors
expect 2 "truncated or damaged; the newest intact one is .*damaged/step-6" "$meshplan" run pp2.json \
  --data text.txt --steps 9 --decay-steps 8 --resume damaged
expect 2 "truncated or damaged" "$meshplan" checkpoint inspect damaged

# --- what to type is offered, and works: a newer intact one beside a damaged one
cp -r b newer
printf 'x' | dd of=newer/step-4/rank-00001.safetensors bs=1 seek=40000 conv=notrunc 2>/dev/null
expect 2 "intact checkpoint of step 8, newer than the one of step 4 .*: --resume $PWD/newer/step-8;|\
intact checkpoint of step 8, newer than the one of step 4 .*: --resume newer/step-8;" \
  "$meshplan" run pp2.json --data text.txt --steps 9 --decay-steps 8 --resume newer/step-4
expect 0 "step time" "$meshplan" run pp2.json --data text.txt --steps 9 --decay-steps 8 --resume newer/step-8
# and an older intact one beside a damaged one, which would be the newest: the whole command
"$meshplan" run pp2.json --data text.txt --steps 9 --decay-steps 8 --resume damaged >stdout 2>stderr
offered=$(sed -nE 's/.*the newest intact one is [^:]*: (.*)/\1/p' stderr)
[ "$offered" = "mv damaged/step-8 damaged/step-8.damaged && meshplan run ... --resume damaged/step-6" ] ||
  fail "no command is offered: $(cat stderr)"
expect 2 "holds damaged checkpoints up to step 8, newer than the one of step 6" "$meshplan" run \
  pp2.json --data text.txt --steps 9 --decay-steps 8 --resume damaged/step-6
eval "${offered/meshplan run .../\"$meshplan\" run pp2.json --data text.txt --steps 9 --decay-steps 8}" >stdout 2>stderr ||
  fail "the offered command does not work: $offered: $(cat stderr)"

# --- export
mkdir exported.tmp && echo mine >exported.tmp/mine
expect 0 "llama of step 8, 21 tensors" "$meshplan" checkpoint export b --to hf --out exported
[ -f exported.tmp/mine ] || fail "a folder of another is gone: $(ls)"
expect 0 "model type +llama" "$meshplan" checkpoint inspect exported
expect 0 "weights of .*exported" "$meshplan" run one.json --data text.txt --steps 2 \
  --init-from exported
for pattern in "read .*hidden_size = " "ignored .*torch_dtype = .*: describes the files"; do
  grep -qE "$pattern" stdout stderr || fail "exported: no '$pattern' in: $(cat stdout stderr)"
done
sed 's/"attention_dropout": 0.0/"attention_dropout": 0.1/' exported/config.json >config.tmp
cp -r exported dropped && mv config.tmp dropped/config.json
expect 0 "differs  dropout = 0.0 in the plan, 0.1 in .*dropped" "$meshplan" run one.json --data text.txt \
  --steps 2 --init-from dropped
sed 's/"hidden_act": "silu"/"hidden_act": "relu"/' exported/config.json >dropped/config.json
expect 2 "dropped: another model than the plan.*: activation is \"relu\", but \"silu\" in the plan" \
  "$meshplan" run one.json --data text.txt --steps 2 --init-from dropped
expect 2 "exists and is not an empty folder" "$meshplan" checkpoint export b --out exported

# --- weights that are not finite: one line of one rank, before the first step
poke() {  # poke FOLDER TENSOR PLACE: NaN there
  cp -r exported "$1"
  python3 - "$1/model.safetensors" "$2" "$3" <<'PY'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    size, = struct.unpack("<Q", file.read(8))
    begin, _ = json.loads(file.read(size))[sys.argv[2]]["data_offsets"]
    file.seek(8 + size + begin + 4 * int(sys.argv[3]))
    file.write(struct.pack("<f", float("nan")))
PY
}
poke broken_norm model.layers.1.input_layernorm.weight 3
poke broken_row model.embed_tokens.weight 16000  # of a token that the text never has
expect 2 "model.layers.1.input_layernorm.weight: 1 of 64 values is not finite in fp32, the first at \[3\]: nan" \
  "$meshplan" run tp2.json --data text.txt --steps 2 --init-from broken_norm
[ "$(grep -c "not finite" stderr)" -eq 1 ] || fail "not one line: $(cat stderr)"
grep -qE "^ +1 " stdout && fail "a step was trained: $(cat stdout)"
expect 2 "model.embed_tokens.weight: 1 of 16384 values is not finite in fp32, the first at \[250, 0\]: nan" \
  "$meshplan" run pp2.json --data text.txt --steps 2 --init-from broken_row

# start_job FOLDER ARGUMENTS...: trains in the background until the first checkpoint is complete
start_job() {
  local folder=$1
  shift
  "$meshplan" run pp2.json --data "$work/text.txt" --steps 1000000 --checkpoint-dir "$folder" \
    --checkpoint-every 1 --keep 3 "$@" >stdout 2>stderr &
  job=$!
  for _ in $(seq 1200); do
    ls "$folder"/step-*/index.json >/dev/null 2>&1 && [ -s stdout ] && return
    sleep 0.05
  done
  fail "the job does not start: $(cat stdout stderr)"
}

# --- SIGTERM saves, and an immediate resume finds it
start_job stopped
kill -TERM "$job"
wait "$job"
code=$?
[ "$code" -eq 130 ] || fail "SIGTERM: exit code $code instead of 130: $(cat stderr)"
last=$(sed -nE 's/.*interrupted by SIGTERM after step ([0-9]+); saved.*/\1/p' stderr)
[ -n "$last" ] && [ -f "stopped/step-$last/index.json" ] || fail "SIGTERM: $(cat stderr)"
grep -E "died|job ends" stderr && fail "SIGTERM is taken for a death"
expect 0 "step time" "$meshplan" run pp2.json --data text.txt --steps $((last + 3)) \
  --decay-steps 1000000 --checkpoint-dir stopped --resume latest

# --- one folder, one job
start_job busy
expect 2 "another job writes checkpoints there|checkpoints of another run" "$meshplan" run pp2.json \
  --data text.txt --steps 2 --checkpoint-dir busy
kill -TERM "$job"
wait "$job"

# --- kill -9 of the launcher's whole job, at random moments of constant saving
RANDOM=11
resume=()
for kill in $(seq "$kills"); do
  "$meshplan" run pp2.json --data "$work/text.txt" --steps 1000000 --checkpoint-dir killed \
    --checkpoint-every 1 --keep 2 "${resume[@]}" >stdout 2>stderr &
  job=$!
  for _ in $(seq 3000); do
    grep -qE '^ +[0-9]+ +[0-9]\.' stdout && break  # the first step of this job
    sleep 0.02
  done
  sleep "0.$(printf '%03d' $((RANDOM % 200)))"
  kill -KILL $(ranks) 2>/dev/null
  wait "$job" 2>/dev/null
  while [ -n "$(ranks)" ]; do sleep 0.02; done
  [ -n "$(ls killed/step-*/index.json 2>/dev/null)" ] || continue
  resume=(--resume latest)
  "$meshplan" checkpoint inspect killed >inspected 2>&1 || fail "after kill $kill: $(cat inspected)"
done
expect 0 "intact +yes" "$meshplan" checkpoint inspect killed
reached=$(sed -nE 's/^step +//p' stdout)
[ "${reached:-0}" -gt "$kills" ] || fail "no progress through $kills kills: step $reached"
echo "after $kills kills: step $reached"

finish

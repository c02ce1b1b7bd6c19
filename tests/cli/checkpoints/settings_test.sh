#!/usr/bin/env bash
# A run of 20 steps that was interrupted after 10 goes on as before, or as it was asked to by name.
# Usage: settings_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
make_plan pp2.json --pp 2

"$meshplan" run pp2.json --data text.txt --steps 20 --seed 3 --lr 1e-3 --log whole.jsonl \
  --checkpoint-dir saved --checkpoint-every 10 >/dev/null 2>stderr || fail "the whole run: $(cat stderr)"
rm -r saved/step-20

resume() { # resume NAME CODE PATTERN ARGUMENTS...: goes on from step 10 in the folder NAME
  rm -rf "$1" && cp -r saved "$1"
  cp whole.jsonl "$1.jsonl" && sed -i '/"kind":"step"/d; /"kind":"summary"/d' "$1.jsonl"
  expect "$2" "$3" "$meshplan" run pp2.json --data text.txt --checkpoint-dir "$1" --resume latest \
    --log "$1.jsonl" "${@:4}"
}

resume same 0 "^continues .*/same/step-10" --lr 1e-3 --steps 20
resume unsaid 0 "^continues .*/unsaid/step-10" --lr 1e-3
grep -E "^(changed|assumed)" stdout && fail "nothing has changed"
diff <(cd same/step-20 && sha256sum rank-*) <(cd unsaid/step-20 && sha256sum rank-*) ||
  fail "without --steps a run is another one"

resume longer 2 "longer/step-10: decay_steps is 20 so far, but 40 now .*: go on as before with --decay-steps 20, \
ask for the change with --change decay_steps, or" --lr 1e-3 --steps 40
resume shorter 2 "decay_steps is 20 so far, but 15 now" --lr 1e-3 --steps 15
resume kept 0 "^continues" --lr 1e-3 --steps 15 --decay-steps 20
resume longer 0 "^changed +decay_steps from 20 to 40$" --lr 1e-3 --steps 40 --change decay_steps
expect 0 "all 40 steps are done" "$meshplan" run pp2.json --data text.txt --resume longer
resume plan 2 "learning_rate is 0.001 so far, but 0.0003 now: go on as before with --learning-rate 0.001," \
  --steps 20
resume plan 0 "^changed +learning_rate from 0.001 to 0.0003$" --steps 20 --change learning_rate
resume several 2 "--change beta2,weight_decay,clip_norm" --lr 1e-3 --beta2 0.5 --weight-decay 0 --clip-norm 0
resume several 0 "^changed +clip_norm from 1 to 0$" --lr 1e-3 --beta2 0.5 --weight-decay 0 --clip-norm 0 \
  --change clip_norm,beta2,weight_decay
resume typo 2 "--change: unknown setting 'beta_2'; did you mean 'beta2'" --lr 1e-3 --change beta_2
resume frozen 2 "frozen is none so far, but embedding now" --lr 1e-3 --freeze embedding
resume frozen 0 "^changed +frozen from none to embedding" --lr 1e-3 --freeze embedding --change frozen
resume seed 2 "seed is 3 so far, but 4 now .*: use --seed 3" --lr 1e-3 --seed 4
expect 2 "--change clip_norm: is of a run that is resumed" "$meshplan" run pp2.json --data text.txt \
  --change clip_norm
# The first start of a command that is restarted has nothing to change yet.
expect 0 "^checkpoints in" "$meshplan" run pp2.json --data text.txt --steps 2 --checkpoint-dir new \
  --resume latest-if-any --change clip_norm

# --- precision is the plan's
make_plan bf16.json --pp 2 --precision bf16
cp -r saved half
expect 2 "precision is fp32 so far, but bf16 now: go on as before with a plan with precision fp32, ask" \
  "$meshplan" run bf16.json --data text.txt --lr 1e-3 --resume half
expect 0 "^changed +precision from fp32 to bf16$" "$meshplan" run bf16.json --data text.txt --lr 1e-3 \
  --resume half --change precision

python3 - <<'PY' || fail "a resumed run has other rates or losses than it was asked to"
import json, math, sys
def steps(name):
    lines = [json.loads(line) for line in open(f"{name}.jsonl")]
    return {line["step"]: line for line in lines if line["kind"] == "step"}
def rate(step, peak, end):  # docs/training_data.md, without a warm-up
    return 0.1 * peak + 0.9 * peak * 0.5 * (1 + math.cos(math.pi * min(1, (step - 1) / end)))
def close(name, peak, end, first, last):
    found = steps(name)
    assert sorted(found) == list(range(first, last + 1)), (name, sorted(found))
    for step, line in found.items():
        assert math.isclose(line["learning_rate"], rate(step, peak, end), rel_tol=1e-9), (name, line)
close("whole", 1e-3, 20, 1, 20)
close("same", 1e-3, 20, 11, 20)
close("kept", 1e-3, 20, 11, 15)
close("longer", 1e-3, 40, 11, 40)
close("plan", 3e-4, 20, 11, 20)
whole = steps("whole")
for name in ("same", "unsaid", "kept"):
    for step, line in steps(name).items():
        for key in ("loss", "gradient_norm", "learning_rate"):
            assert line[key] == whole[step][key], (name, step, key)
PY

finish

#!/usr/bin/env bash
# `meshplan lesson` as a class uses it: what there is, every lesson's runs, and what is refused.
# Usage: lesson_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

expect 0 "11  Failures, and a job that goes on" "$meshplan" lesson
[ "$(wc -l <stdout)" -eq 14 ] || fail "not eleven lessons: $(cat stdout)"
expect 2 "lesson 12: expected a number from 1 to 11" "$meshplan" lesson 12
expect 2 "lesson ring: expected a number" "$meshplan" lesson ring
expect 2 "of which lesson" "$meshplan" lesson --json
expect 2 "nowhere" "$meshplan" lesson 1 --cluster nowhere
expect 2 "none.txt" "$meshplan" lesson 1 --cluster cpu-host --data none.txt

# --- every lesson runs, and its figures are those of its plans
# mpiexec for the lessons: trains on 1/$SHORTER of each sequence, and keeps the traces of plans that lessons share.
# Traces get the lesson's sequence length back.
real=$(command -v mpiexec)
mkdir bin traces
cat >bin/mpiexec <<SH
#!/usr/bin/env bash
words=("\$@")
for i in "\${!words[@]}"; do
  case \${words[i]} in
    */run-*.json) plan=\${words[i]} words[i]=$work/small.json ;;
    --trace) trace=\${words[i + 1]} ;;
    --traced-steps) traced=\${words[i + 1]} ;;
  esac
done
full=\$(sed -nE 's/^ *"seq_len": ([0-9]+).*/\1/p' "\$plan")
short=\$((full / SHORTER))
kept=$work/traces/\$short-\$traced-\$(md5sum <"\$plan" | cut -d ' ' -f 1)
if [ ! -e "\$kept" ]; then
  sed -E "s/(\"seq_len\": )\$full/\1\$short/" "\$plan" >"$work/small.json"
  "$real" "\${words[@]}" || exit
  sed -E "s/(\"seq_len\": )\$short/\1\$full/" "\$trace" >"\$kept"
fi
cp "\$kept" "\$trace"
SH
chmod +x bin/mpiexec
for number in 1 2 3 4 5 6 7 8 9 10 11; do
  shorter=8
  [ "$number" -ne 5 ] || shorter=2  # recomputation saves little memory of short sequences
  SHORTER=$shorter PATH=$PWD/bin:$PATH expect 0 '"lesson": '"$number," \
    "$meshplan" lesson "$number" --cluster cpu-host --rounds 1 --steps 2 --json
  mv stdout "lesson-$number.json"
done
python3 - <<'PY' || fail "lessons say wrong figures"
import json, sys
def right(number):
    answer = json.load(open(f"lesson-{number}.json"))
    rows = answer["trial"]["rows"]
    # What is trained does not depend on how: runs of one batch end at one loss.
    same_batch = {1: 2, 10: 2}.get(number, len(rows))
    losses = [row["last_loss"] for row in rows[:same_batch]]
    memory = [row["measured_memory_bytes"] for row in rows]
    less_memory = {2: (1, 0), 5: (1, 0), 6: (1, 0), 8: (1, 0)}.get(number)
    return (2 <= len(rows) <= 3
            and all(row["measured_step_time_s"] > 0 and row["predicted_step_time_s"] > 0 for row in rows)
            and max(losses) - min(losses) <= 1e-4 * max(losses)
            and (less_memory is None or memory[less_memory[0]] < memory[less_memory[1]])
            and answer["comparison"]["measured"]["median_s"] > 0 and answer["comparison"]["operations"] and answer["look"])
wrong = [number for number in range(1, 12) if not right(number)]
for number in wrong:
    print(f"lesson {number}: {open(f'lesson-{number}.json').read()[:2000]}")
sys.exit(bool(wrong))
PY
SHORTER=8 PATH=$PWD/bin:$PATH expect 0 "Look closer" "$meshplan" lesson 1 --cluster cpu-host --rounds 1 --steps 2
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' stdout)" -le 100 ] ||
  fail "wider than 100 columns: $(awk 'length($0) > 100' stdout)"

# --- sizes of a scaling curve are measured on ranks, too
expect 0 '"measured"' "$meshplan" scale --model tiny-llama --cluster cpu-host --gpus 1 --axis dp --to 2 --precision fp32 \
  --global-batch 4 --seq-len 64 --run --steps 3 --rounds 1 --json
python3 - <<'PY' || fail "not every size was measured: $(head -c 2000 stdout)"
import json, sys
points = json.load(open("stdout"))["measured"]["points"]
sys.exit(not ([point["devices"] for point in points] == [1, 2] and all(point["step_time_s"] > 0 for point in points)))
PY
expect 2 "expected one machine whose ranks run on its processors" "$meshplan" scale --model tiny-llama --cluster dgx-h100 \
  --gpus 1 --axis dp --to 2 --global-batch 4 --run
finish

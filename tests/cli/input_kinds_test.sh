#!/usr/bin/env bash
# Whatever is named where a file is expected, no command waits for it for ever.
# Usage: input_kinds_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
source "$tests/tiny_training.sh"

"$meshplan" plan --model model.json --cluster cpu-host --ranks 1 --global-batch 4 --seq-len 32 --out plan.json \
  >/dev/null || fail "no plan"
"$meshplan" simulate plan.json --trace trace.json >/dev/null || fail "no trace"
mkfifo fifo
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket.json")'
mkdir folder
ln -s fifo link.json

# --- every place of a file, with what is none
places=("check FILE" "simulate FILE" "plan --model FILE --cluster cpu-host" "plan --model model.json --cluster FILE"
  "plan --model model.json --cluster cpu-host --global-batch 4 --seq-len 32 --space FILE" "compare FILE plan.json" "compare plan.json FILE"
  "report plan.json --measured FILE --out x.html"
  "export FILE --to megatron" "import FILE" "diff plan.json FILE" "validate --table FILE" "schedule FILE"
  "simulate plan.json --adjusted FILE" "run FILE" "run plan.json --data FILE" "run plan.json --hostfile FILE" "calibrate --cluster cpu-host --refine FILE --out x.json"
  "data inspect FILE" "data prepare FILE --tokenizer FILE --out x" "trial FILE" "explain FILE" "export plan.json --to megatron --certificate FILE")
for place in "${places[@]}"; do
  for file in link.json socket.json /dev/zero; do
    expect 2 "$file: is (a FIFO \(named pipe\)|a socket|a device)" "$meshplan" ${place//FILE/$file}
  done
done
for kind in fifo socket.json /dev/zero folder; do
  rm -rf tokens weights && mkdir tokens weights
  ln -s "$(realpath $kind)" tokens/tokenizer.json
  ln -s "$(realpath $kind)" weights/config.json
  ln -s "$(realpath $kind)" weights/model.safetensors
  expect 2 "tokenizer.json: is a" "$meshplan" data prepare text.txt --tokenizer tokens --out x
  expect 2 "config.json: is a" "$meshplan" plan --model weights --cluster cpu-host
  expect 2 "config.json: is a" "$meshplan" run plan.json --steps 1 --data text.txt --init-from weights
done
expect 1 "fifo: cannot be written: it is a FIFO \(named pipe\) that nobody reads" "$meshplan" simulate plan.json --json --trace fifo
yes '{"a": 1}' | expect 2 "/dev/stdin: holds [0-9]+ bytes or more, more than the limit of" "$meshplan" check /dev/stdin

# --- pipes that have a writer, as often as a command reads them
"$meshplan" simulate plan.json >direct
"$meshplan" simulate <(cat plan.json) >piped 2>&1
cmp -s direct piped || fail "a plan through a pipe: $(cat piped)"
cat plan.json | "$meshplan" simulate /dev/stdin >piped 2>&1
cmp -s direct piped || fail "a plan through standard input: $(cat piped)"
cat plan.json >fifo &
"$meshplan" simulate fifo >piped 2>&1
cmp -s direct piped || fail "a plan through a FIFO: $(cat piped)"
"$meshplan" compare plan.json plan.json >direct
for pipe in cat "gzip -c"; do
  "$meshplan" compare <($pipe trace.json) --step-time 0.1 >piped 2>&1
  grep -q "measured" piped || fail "a trace through a pipe of $pipe: $(cat piped)"
done
cat fifo >traced &
expect 0 "" "$meshplan" simulate plan.json --trace fifo
wait
cmp -s trace.json traced || fail "a trace through a FIFO: $(head -c 100 traced)"

finish

#!/usr/bin/env bash
# Text to token files, as a user sees it.
# Usage: data_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

mkdir tok
cat >tok/tokenizer.json <<'JSON'
{"added_tokens": [{"id": 9, "content": "<|endoftext|>"}],
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4, "\u010a": 5},
           "merges": ["a b", "\u0120 ab"]}}
JSON
printf 'ab ab ba' >one.txt
printf '{"text": "ab"}\n\n{"text": "a\\nb", "id": 7}\n' >two.jsonl

# ab, _ab, _, b, a, end; ab, end; a, newline, b, end
expect 0 "book.u16: 12 tokens of 3 documents, .* vocabulary 10" "$meshplan" data prepare one.txt \
  two.jsonl --tokenizer tok --out book
tokens=$(od -An -v -tu2 -w2 book.u16 | tr -s ' \n' ' ')
[ "$tokens" = " 3 4 2 1 0 9 3 9 0 5 1 9 " ] || fail "tokens $tokens"
expect 0 "12 tokens, 7 distinct, largest 9" "$meshplan" data inspect book.u16 --tokenizer tok
expect 0 'starts with: "ab ab ba<\|endoftext\|>ab<\|endoftext\|>a\\nb<\|endoftext\|>"' \
  "$meshplan" data inspect book.u16 --tokenizer tok
expect 0 '"tokens": 12,' "$meshplan" data inspect book.u16 --json
expect 0 "plain.u16: 5 tokens of 1" "$meshplan" data prepare one.txt --tokenizer tok/tokenizer.json \
  --out plain.u16 --no-end-token
echo mine >plain.u16.part
expect 0 "plain.u16: 5 tokens of 1" "$meshplan" data prepare one.txt --tokenizer tok --out plain.u16 --no-end-token
[ "$(cat plain.u16.part)" = mine ] || fail "a file of another is gone: $(ls)"
sed 's/"id": 9/"id": 70000/' tok/tokenizer.json >wide.json
expect 0 "wide.u32: 6 tokens" "$meshplan" data prepare one.txt --tokenizer wide.json --out wide
[ "$(od -An -v -tu4 -w4 wide.u32 | tail -1 | tr -d ' ')" = 70000 ] || fail "the wide end token"

expect 2 "what to do\?" "$meshplan" data
expect 2 "unknown action 'prepar'; did you mean 'prepare'" "$meshplan" data prepar one.txt
expect 2 "which files\?" "$meshplan" data prepare --tokenizer tok --out x
expect 2 "none.txt: no such file" "$meshplan" data prepare none.txt --tokenizer tok --out x
expect 2 "this vocabulary needs .u16" "$meshplan" data prepare one.txt --tokenizer tok --out x.u32
expect 2 "has no such token" "$meshplan" data prepare one.txt --tokenizer tok --out x --end-token no
printf 'ab\377' >bad.txt
expect 2 "bad.txt: the text is not UTF-8 at its byte 2" "$meshplan" data prepare one.txt bad.txt \
  --tokenizer tok --out x
printf '{"txt": "ab"}\n' >bad.jsonl
expect 2 'bad.jsonl: line 1: expected an object with a string "text"' "$meshplan" data prepare \
  bad.jsonl --tokenizer tok --out x

# The order that a run reads a file in: 12 sequences of 16 tokens, 4 a step, 2 dp ranks of 2 tp ranks.
awk 'BEGIN { for (i = 0; i < 194; ++i) printf "%c", 65 + i % 26 }' >order.txt
"$meshplan" simulate --model tiny-llama --cluster cpu-host --ranks 4 --tp 2 --dp 2 --global-batch 4 \
  --seq-len 16 --out order.json >/dev/null || fail "no plan"
expect 0 "194 tokens; 12 sequences of 16 tokens, .* \(seed 3\)" "$meshplan" data order order.json \
  --data order.txt --seed 3 --steps 2
expect 0 "step  micro-batch  dp rank  ranks  epoch  sequence  tokens of the file" "$meshplan" data \
  order order.json --data order.txt
read_twice=$("$meshplan" data order order.json --data order.txt --steps 3 --json |
  grep '"sequence":' | sort | uniq -d)
[ -z "$read_twice" ] || fail "an epoch of three steps reads $read_twice more than once"
expect 0 ', of which 129..193 are held out' "$meshplan" data order order.json --data order.txt \
  --eval-every 1
# Seven sequences a step on two replicas: four and three, and one place is empty.
"$meshplan" simulate --model tiny-llama --cluster cpu-host --ranks 2 --dp 2 --global-batch 7 \
  --seq-len 16 --uneven-batch --out uneven.json >/dev/null || fail "no uneven plan"
expect 0 "0 +3 +1 +1 +- +- +empty: counts in no loss" "$meshplan" data order uneven.json --data order.txt
"$meshplan" data order uneven.json --data order.txt --steps 12 --json >uneven_order.json
[ "$(grep -c '"sequence": null' uneven_order.json)" = 12 ] || fail "not one empty place a step"
[ "$(grep '"sequence": [0-9]' uneven_order.json | sort | uniq -c | awk '{print $1}' | sort -u)" = 7 ] ||
  fail "12 steps of 7 read the 12 sequences unequally often"
expect 2 "expected one plan, got 0 files|which files" "$meshplan" data order --data order.txt
expect 2 "\-\-data is missing" "$meshplan" data order order.json
expect 2 "\-\-steps 0: must be at least 1" "$meshplan" data order order.json --data order.txt \
  --steps 0
[ -z "$(ls x* 2>/dev/null)" ] || fail "left over: $(ls x*)"

finish

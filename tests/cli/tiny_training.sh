# What tests of training start from: a tiny model, a text, and plans; to be sourced after expect.sh.
cat >model.json <<'JSON'
{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 256,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
JSON
for _ in $(seq 200); do echo "the quick brown fox jumps over the lazy dog"; done >text.txt

make_plan() {  # make_plan FILE ARGUMENTS...
  "$meshplan" simulate --model model.json --cluster cpu-host --global-batch 4 --seq-len 32 \
    --out "$@" >stdout 2>stderr || fail "no plan $1: $(cat stderr)"
}

#!/usr/bin/env python3
"""Groups and memory of the layouts in layouts.json, from definitions alone.

  derive.py            writes derived.json beside it
  derive.py --check    fails if that is not what derived.json holds

Ranks are numbered tp-cp-ep-dp-pp from the innermost, Megatron-LM's default; experts have a grid of
their own in each stage, etp-ep-edp. State is 2 bytes of weight, 4 of gradient and 12 of fp32 weight
and Adam's moments a parameter. Activations are those of Korthikanti et al. 2022, equation 4, without
masks of dropout and with fused attention: of a GPT 32 s b h / tp a layer, written for any widths.
"""
import json
import sys
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent
PRESETS = HERE.parents[2] / "models/presets"
DEFAULTS = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "dp": 1, "ep": 1, "etp": 1, "micro_batch": 1,
            "zero": 0, "recompute": "none", "ends": False}


def completed(layout):
    layout = DEFAULTS | layout
    return layout | {"sp": layout.get("sp", layout["tp"] > 1)}


def grid(axes):
    """Coordinates of ranks 0, 1, ...; axes innermost first: [("tp", 8), ...]."""
    names = [name for name, _ in reversed(axes)]
    for place in product(*(range(degree) for _, degree in reversed(axes))):
        yield dict(zip(names, place))


def groups(axes, varied):
    """Ranks that differ along `varied` alone, in order of their first."""
    found = {}
    for rank, place in enumerate(grid(axes)):
        key = tuple(value for name, value in place.items() if name != varied)
        found.setdefault(key, []).append(rank)
    return sorted(found.values())


def all_groups(l):
    dense = [("tp", l["tp"]), ("cp", l["cp"]), ("dp", l["dp"]), ("pp", l["pp"])]
    kinds = {name: groups(dense, name) for name, _ in dense}
    if l["ep"] > 1:
        stage = l["tp"] * l["cp"] * l["dp"]
        expert = [("etp", l["etp"]), ("ep", l["ep"]), ("edp", stage // (l["etp"] * l["ep"])),
                  ("pp", l["pp"])]
        kinds |= {name: groups(expert, name) for name, _ in expert[:3]}
    return {kind: {"number": len(g), "size": len(g[0]), "first": g[0], "last": g[-1]}
            for kind, g in kinds.items() if len(g[0]) > 1}


def attention_parameters(m):
    """Divided by tp, and of every rank."""
    h = m["hidden_size"]
    if "mla" in m:
        a = m["mla"]
        heads, rope = m["num_heads"], a["qk_rope_head_size"]
        q = a["q_lora_rank"] * heads * (a["qk_nope_head_size"] + rope)
        kv = a["kv_lora_rank"] * heads * (a["qk_nope_head_size"] + a["v_head_size"])
        down = h * (a["q_lora_rank"] + a["kv_lora_rank"] + rope) + a["q_lora_rank"] + a["kv_lora_rank"]
        return q + kv + heads * a["v_head_size"] * h, down
    q, kv = m["num_heads"] * m["head_size"], m["num_kv_heads"] * m["head_size"]
    biases = q + 2 * kv if m.get("qkv_bias") else 0
    return h * (q + 2 * kv) + q * h + biases, h if m.get("attention_out_bias") else 0


def mlp_parameters(m, width):
    h = m["hidden_size"]
    if m.get("mlp") == "plain":
        return 2 * h * width + width, h
    return 3 * h * width, 0


def parameters_of_first_stage(m, l):
    """(of experts, others) that a rank of it holds."""
    tp, h = l["tp"], m["hidden_size"]
    norm = 2 * h if m.get("norm") == "layer_norm" else h
    divided, whole = attention_parameters(m)
    kv = 2 * m["num_kv_heads"] * m["head_size"] * h  # held by several ranks where tp exceeds them
    attention = divided / tp + whole + kv / m["num_kv_heads"] * max(0, 1 - m["num_kv_heads"] / tp)
    moe = m.get("moe", {})
    dense_layers = set(moe.get("dense_layers", [])) if moe else set(range(m["num_layers"]))
    experts = others = 0.0
    for layer in range(layers_of_first_stage(m, l)):
        others += attention + 2 * norm
        if layer in dense_layers:
            divided, whole = mlp_parameters(m, m["ffn_size"])
            others += divided / tp + whole
        else:
            experts += moe["num_experts"] / l["ep"] * 3 * h * moe["expert_ffn_size"] / l["etp"]
            others += h * moe["num_experts"] + 3 * h * moe.get("shared_expert_ffn_size", 0) / tp
    others += m["vocab_size"] * h / tp
    if m.get("positions") == "learned":
        others += m["max_positions"] * h
    if l["pp"] == 1:
        others += norm + (0 if m.get("tied_embeddings") else m["vocab_size"] * h / tp)
    return experts, others


def layers_of_first_stage(m, l):
    """What does not divide evenly goes to stages in the middle."""
    if l["ends"]:
        return (m["num_layers"] + 2) // l["pp"] - 1
    chunks = l["pp"] * l["vpp"]
    each, more = divmod(m["num_layers"], chunks)
    reaches_first = more > 0 and (chunks - more) // 2 == 0
    return each * l["vpp"] + (1 if reaches_first else 0)


def streamed_bytes(m, l):
    """Two units in turn, of gradients (ZeRO 2, 3) and of weights (3): a layer, or a larger embedding."""
    if l["zero"] < 2:
        return 0
    attention, mlp = attention_parameters(m), mlp_parameters(m, m["ffn_size"])
    layer = (attention[0] + mlp[0]) / l["tp"] + attention[1] + mlp[1]
    return 2 * max(layer, m["vocab_size"] * m["hidden_size"] / l["tp"]) * (6 if l["zero"] == 3 else 4)


def state_bytes(m, l):
    stage = l["tp"] * l["cp"] * l["dp"]
    experts, others = parameters_of_first_stage(m, l)
    total = streamed_bytes(m, l)
    for held, shards in ((others, l["cp"] * l["dp"]), (experts, stage // (l["etp"] * l["ep"]))):
        total += held * sum(size / (shards if l["zero"] >= stage_from else 1)
                            for size, stage_from in ((2, 3), (4, 2), (12, 1)))
    return total


def layer_bytes(m, l, recompute):
    """What a layer keeps of a micro-batch until its backward; None with experts, whose rows depend
    on the router."""
    if "moe" in m:
        return None
    h, f = m["hidden_size"], m["ffn_size"]
    tokens = l["seq"] * l["micro_batch"] / l["cp"]
    whole = 1 if l["sp"] else l["tp"]  # tokens of norms and residuals, in shares of tp
    if recompute == "full":
        return 2 * tokens * h * whole / l["tp"]
    projections = 1 + 2 * m["num_kv_heads"] / m["num_heads"]  # of q, k, v
    kv_copies = max(1, l["tp"] / m["num_kv_heads"])
    projections = 1 + (projections - 1) * kv_copies
    parts = 2 if m.get("mlp") == "plain" else 3  # inputs and output of the activation function
    norms = 2 if recompute == "none" else 0
    if recompute == "selective":
        parts -= 1
    values = (2 + norms) * whole * h + (projections + 1) * h + parts * f
    return 2 * tokens * values / l["tp"]


def layers_in_flight(m, l):
    """Layers whose activations rank 0 keeps, at most, when its first backward begins."""
    microbatches = l["batch"] // (l["dp"] * l["micro_batch"])
    layers = layers_of_first_stage(m, l)
    if l["vpp"] == 1:
        return min(l["pp"], microbatches) * layers
    # Narayanan et al. 2021, 2.2: 2 (pp - 1) + (vpp - 1) pp tasks warm up, and one more runs.
    chunks = min(l["vpp"] * l["pp"] + l["pp"] - 1, l["vpp"] * microbatches)
    if not l["ends"]:
        return chunks * layers / l["vpp"]
    # The embedding takes the place of a layer in the first chunk, of which pp - 1 more are in flight.
    return chunks * (layers + 1) / l["vpp"] - min(2 * l["pp"] - 1, microbatches)


def activation_bytes(m, l):
    kept = layer_bytes(m, l, l["recompute"])
    if kept is None:
        return None
    again = layer_bytes(m, l, "none") if l["recompute"] == "full" else 0  # of one layer at a time
    return round(layers_in_flight(m, l) * kept + again)


def derived(layout):
    l = completed(layout)
    m = json.loads((PRESETS / f"{l['model']}.json").read_text())
    answer = {"name": l["name"], "groups": all_groups(l)}
    if l["fits"] is not None:
        answer |= {"state_bytes": round(state_bytes(m, l)),
                   "activation_bytes": activation_bytes(m, l)}
    return answer


def text_of(layouts):
    lines = []
    for one in layouts:
        parts = [f'"name": {json.dumps(one["name"])}']
        parts += [f'"{key}": {json.dumps(one[key])}' for key in ("state_bytes", "activation_bytes")
                  if key in one]
        parts.append('"groups": {\n     ' + ",\n     ".join(
            f'"{kind}": {json.dumps(group)}' for kind, group in one["groups"].items()) + "}")
        lines.append("  {" + ",\n   ".join(parts) + "}")
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main():
    layouts = json.loads((HERE / "layouts.json").read_text())
    text = text_of([derived(layout) for layout in layouts])
    if sys.argv[1:] == ["--check"]:
        if (HERE / "derived.json").read_text() != text:
            sys.exit("derived.json is not what derive.py derives from layouts.json")
        print(f"{len(layouts)} layouts")
    else:
        (HERE / "derived.json").write_text(text)


if __name__ == "__main__":
    main()

"""Llama, GPT-2, gpt-oss, DeepSeek-V3, Gemma 2 and 3 and BERT in PyTorch, from the public definitions of
the architectures: Touvron et al. 2023 (RMSNorm, SwiGLU, rotary positions, grouped queries), Radford et
al. 2019 (LayerNorm, GELU, learned positions, Conv1D weights), OpenAI 2025 (gpt-oss model card: sinks,
windows in every other layer, clamped SwiGLU, biases), DeepSeek-V2 and V3 (latent attention,
experts), Gemma Team 2024 (soft caps, norms around both halves, sliding and full layers in turn), Gemma
Team 2025 (five sliding layers to a full one, a base of positions for each kind, norms of queries and keys),
Devlin et al. 2019 (norms behind the sums, a pooler and a classifier on the first token), with the
tensor names of the published checkpoints. Parameters are a dict of leaf tensors; meshplan's code was
not looked at.
"""
import math

import torch
import torch.nn.functional as F


def causal_attention(q, k, v, scale=None):
    """q, k, v: (batch, heads, tokens, size); scale of the scores: 1 / sqrt(size) if not given"""
    scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    tokens = q.shape[-2]
    mask = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


kink_distances = []
"""How close the calls of choose_experts, choose_keys and clamp came to where a rounding error changes what
follows."""


def choose_experts(scores, count):
    """The `count` highest of each row's scores (..., experts), and which experts have them."""
    leading = scores.detach().topk(count + 1, -1).values
    kink_distances.append((leading[..., -2] - leading[..., -1]).min().item())
    return scores.topk(count, -1)


def clamp(x, low, high):
    """Its gradient jumps at both bounds; low may be -inf."""
    kink_distances.append(min((x.detach() - bound).abs().min().item() for bound in (low, high)))
    return x.clamp(low, high)


def yarn_magnitude(factor, mscale):
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def rope_frequencies(config, size, tokens):
    """Radians per position of each pair and the factor of cos and sin, as transformers documents
    `rope_scaling`: position interpolation (Chen et al. 2023), NTK-aware bases, YaRN (Peng et al.
    2023), Llama 3.1's bands of wavelengths.
    """
    base, scaling = config["rope_theta"], config.get("rope_scaling") or {}
    exponents = torch.arange(0, size, 2, dtype=torch.float64) / size
    kind, factor = scaling.get("rope_type", "default"), scaling.get("factor")
    if kind == "dynamic":
        trained = config["max_position_embeddings"]
        length = max(tokens, trained)
        base = base * (factor * length / trained - factor + 1) ** (size / (size - 2))
    plain = 1.0 / base ** exponents
    if kind in ("default", "dynamic"):
        return plain, 1.0
    if kind == "linear":
        return plain / factor, 1.0
    trained = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        wavelengths = 2 * math.pi / plain
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (trained / wavelengths - low) / (high - low)
        blended = (1 - smooth) * plain / factor + smooth * plain
        scaled = torch.where(wavelengths > trained / low, plain / factor, blended)
        return torch.where(wavelengths < trained / high, plain, scaled), 1.0
    assert kind == "yarn", kind

    def pair(turns):
        return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = ((torch.arange(size // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    mscales = scaling.get("mscale"), scaling.get("mscale_all_dim")
    amplitude = scaling.get("attention_factor")
    if amplitude is None:
        amplitude = (yarn_magnitude(factor, mscales[0]) / yarn_magnitude(factor, mscales[1])
                     if all(mscales) else yarn_magnitude(factor, 1))
    return plain / factor * ramp + plain * (1 - ramp), amplitude


def rotate(x, config):
    """Rotary positions: element i of the first half turns with element i of the second."""
    tokens, size = x.shape[-2:]
    frequencies, amplitude = rope_frequencies(config, size, tokens)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
    cos, sin = ((amplitude * turn).float().to(x.device) for turn in (angles.cos(), angles.sin()))
    first, second = x[..., :size // 2], x[..., size // 2:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def llama(config, weights, ids):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    epsilon = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name):
            return weights[f"model.layers.{layer}.{name}.weight"]
        h = rms_norm(x, w("input_layernorm"), epsilon)
        q = rotate(split_heads(h @ w("self_attn.q_proj").T, heads), config)
        k = rotate(split_heads(h @ w("self_attn.k_proj").T, kv_heads), config)
        v = split_heads(h @ w("self_attn.v_proj").T, kv_heads)
        k = k.repeat_interleave(heads // kv_heads, 1)
        v = v.repeat_interleave(heads // kv_heads, 1)
        x = x + causal_attention(q, k, v).transpose(1, 2).flatten(-2) @ w("self_attn.o_proj").T
        h = rms_norm(x, w("post_attention_layernorm"), epsilon)
        gated = F.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T)
        x = x + gated @ w("mlp.down_proj").T
    x = rms_norm(x, weights["model.norm.weight"], epsilon)
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return x @ weights[head + ".weight"].T


def gpt_oss(config, weights, ids):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    epsilon = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name):
            return weights[f"model.layers.{layer}.{name}"]

        def linear(y, name):
            return y @ w(name + ".weight").T + w(name + ".bias")
        h = rms_norm(x, w("input_layernorm.weight"), epsilon)
        q = rotate(split_heads(linear(h, "self_attn.q_proj"), heads), config)
        k = rotate(split_heads(linear(h, "self_attn.k_proj"), kv_heads), config)
        v = split_heads(linear(h, "self_attn.v_proj"), kv_heads)
        window = config["sliding_window"] if layer % 2 == 0 else ids.shape[1]
        o = sink_attention(q, k.repeat_interleave(heads // kv_heads, 1),
                           v.repeat_interleave(heads // kv_heads, 1), w("self_attn.sinks"), window)
        x = x + linear(o.transpose(1, 2).flatten(-2), "self_attn.o_proj")
        h = rms_norm(x, w("post_attention_layernorm.weight"), epsilon)
        chosen = choose_experts(linear(h, "mlp.router"), config["num_experts_per_tok"])
        for choice, share in zip(chosen.indices.unbind(-1), chosen.values.softmax(-1).unbind(-1)):
            gate_up = (torch.einsum("...d,...df->...f", h, w("mlp.experts.gate_up_proj")[choice])
                       + w("mlp.experts.gate_up_proj_bias")[choice])
            gate, up = clamp(gate_up[..., ::2], -math.inf, 7), clamp(gate_up[..., 1::2], -7, 7)
            inner = gate * torch.sigmoid(1.702 * gate) * (up + 1)
            down = (torch.einsum("...f,...fd->...d", inner, w("mlp.experts.down_proj")[choice])
                    + w("mlp.experts.down_proj_bias")[choice])
            x = x + share[..., None] * down
    return rms_norm(x, weights["model.norm.weight"], epsilon) @ weights["lm_head.weight"].T


def sink_attention(q, k, v, sinks, window):
    """Each head's sink is one more score, whose value is nothing."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    tokens = q.shape[-2]
    mask = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril().triu(1 - window)
    scores = scores.masked_fill(~mask, float("-inf"))
    sinks = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ v


def gpt2(config, weights, ids):
    heads, epsilon = config["n_head"], config["layer_norm_epsilon"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"],
                            epsilon)

    def conv1d(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][:ids.shape[1]]
    for layer in range(config["n_layer"]):
        h = f"transformer.h.{layer}."
        q, k, v = (split_heads(part, heads) for part in
                   conv1d(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1))
        scale = None if config.get("scale_attn_weights", True) else 1.0
        attended = causal_attention(q, k, v, scale).transpose(1, 2).flatten(-2)
        x = x + conv1d(attended, h + "attn.c_proj")
        up = conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc")
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        x = x + conv1d(gelu, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].T


def latent_parts(config, w, h):
    """Of multi-head latent attention (DeepSeek-V2, section 2.1), whose norms have an epsilon of 1e-6: the
    compressed queries, then queries, keys and values by heads and the scale of their scores."""
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]

    def turn(x):  # the published files hold the rotated elements as pairs
        return rotate(torch.cat([x[..., ::2], x[..., 1::2]], -1), config)

    low = rms_norm(h @ w("self_attn.q_a_proj").T, w("self_attn.q_a_layernorm"), 1e-6)
    q = split_heads(low @ w("self_attn.q_b_proj").T, heads)
    latent = h @ w("self_attn.kv_a_proj_with_mqa").T
    k_rope = turn(latent[..., None, :, rank:]).expand(-1, heads, -1, -1)
    kv = rms_norm(latent[..., :rank], w("self_attn.kv_a_layernorm"), 1e-6)
    kv = split_heads(kv @ w("self_attn.kv_b_proj").T, heads)
    q = torch.cat([q[..., :nope], turn(q[..., nope:])], -1)
    k = torch.cat([kv[..., :nope], k_rope], -1)
    scale = 1 / math.sqrt(nope + rope)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("mscale_all_dim"):
        scale *= yarn_magnitude(scaling["factor"], scaling["mscale_all_dim"]) ** 2
    return low, q, k, kv[..., nope:], scale


def deepseek_attention(config, w, h):
    _, q, k, v, scale = latent_parts(config, w, h)
    return causal_attention(q, k, v, scale).transpose(1, 2).flatten(-2) @ w("self_attn.o_proj").T


def deepseek_experts(config, w, h):
    """Sigmoid scores, greedy top-k, weights that sum to routed_scaling_factor, shared experts."""
    def mlp(name, x):
        return (F.silu(x @ w(name + ".gate_proj").T) * (x @ w(name + ".up_proj").T)
                ) @ w(name + ".down_proj").T

    scores = (h @ w("mlp.gate").T).sigmoid()
    chosen, experts = choose_experts(scores, config["num_experts_per_tok"])
    chosen = chosen / chosen.sum(-1, keepdim=True) * config["routed_scaling_factor"]
    out = mlp("mlp.shared_experts", h)
    for expert in range(config["n_routed_experts"]):
        weight = (chosen * (experts == expert)).sum(-1, keepdim=True)
        out = out + weight * mlp(f"mlp.experts.{expert}", h)
    return out


def deepseek_v3(config, weights, ids):
    epsilon = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name):
            return weights[f"model.layers.{layer}.{name}.weight"]
        x = x + deepseek_attention(config, w, rms_norm(x, w("input_layernorm"), epsilon))
        x = x + deepseek_experts(config, w, rms_norm(x, w("post_attention_layernorm"), epsilon))
    return rms_norm(x, weights["model.norm.weight"], epsilon) @ weights["lm_head.weight"].T


def random_deepseek_v3(config, seed):
    torch.manual_seed(seed)
    hidden, heads, width = (config[k] for k in
                            ("hidden_size", "num_attention_heads", "moe_intermediate_size"))
    q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
    nope, rope, value = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    experts = [f"experts.{i}" for i in range(config["n_routed_experts"])] + ["shared_experts"]
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
                 "self_attn.q_a_proj": (q_rank, hidden), "self_attn.q_a_layernorm": (q_rank,),
                 "self_attn.q_b_proj": (heads * (nope + rope), q_rank),
                 "self_attn.kv_a_proj_with_mqa": (kv_rank + rope, hidden),
                 "self_attn.kv_a_layernorm": (kv_rank,),
                 "self_attn.kv_b_proj": (heads * (nope + value), kv_rank),
                 "self_attn.o_proj": (hidden, heads * value),
                 "mlp.gate": (config["n_routed_experts"], hidden)}
        for expert in experts:
            parts[f"mlp.{expert}.gate_proj"] = parts[f"mlp.{expert}.up_proj"] = (width, hidden)
            parts[f"mlp.{expert}.down_proj"] = (hidden, width)
        for name, shape in parts.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return _fill(shapes)


def soft_cap(x, cap):
    return x if cap is None else cap * torch.tanh(x / cap)


def gemma(config, weights, ids):
    """Gemma 2, whose even layers are sliding, or Gemma 3, whose every sliding_window_pattern-th is full."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    tokens = ids.shape[1]
    places = torch.arange(tokens, device=ids.device)
    distance = places[:, None] - places
    is_third = config["model_type"] == "gemma3_text"
    local = {"rope_theta": config["rope_local_base_freq"]} if is_third else config

    def norm(x, name):
        return rms_norm(x, 1 + weights[name + ".weight"], config["rms_norm_eps"])

    x = weights["model.embed_tokens.weight"][ids] * math.sqrt(config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        sliding = (layer + 1) % config.get("sliding_window_pattern", 2) != 0

        def linear(x, part):
            return x @ weights[name + part + ".weight"].T

        def turned(h, which, count):
            x = split_heads(linear(h, f"self_attn.{which}_proj"), count)
            if is_third:
                x = norm(x, name + f"self_attn.{which}_norm")
            return rotate(x, local if sliding else config)

        h = norm(x, name + "input_layernorm")
        q, k = turned(h, "q", heads), turned(h, "k", kv_heads)
        v = split_heads(linear(h, "self_attn.v_proj"), kv_heads)
        k = k.repeat_interleave(heads // kv_heads, 1)
        v = v.repeat_interleave(heads // kv_heads, 1)
        scores = soft_cap(q @ k.transpose(-1, -2) / math.sqrt(config["query_pre_attn_scalar"]),
                          config["attn_logit_softcapping"])
        hidden = distance < 0
        if sliding:
            hidden = hidden | (distance >= config["sliding_window"])
        o = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        o = linear(o.transpose(1, 2).flatten(-2), "self_attn.o_proj")
        x = x + norm(o, name + "post_attention_layernorm")
        h = norm(x, name + "pre_feedforward_layernorm")
        gated = F.gelu(linear(h, "mlp.gate_proj"), approximate="tanh") * linear(h, "mlp.up_proj")
        x = x + norm(linear(gated, "mlp.down_proj"), name + "post_feedforward_layernorm")
    x = norm(x, "model.norm")
    return soft_cap(x @ weights["model.embed_tokens.weight"].T, config["final_logit_softcapping"])


def bert(config, weights, ids):
    """Logits of the classes: (sequences, classes). No token is padding and all are of type 0."""
    heads = config["num_attention_heads"]

    def linear(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"],
                            config["layer_norm_eps"])

    table = "bert.embeddings.{}_embeddings.weight"
    x = norm(weights[table.format("word")][ids] +
             weights[table.format("position")][:ids.shape[1]] +
             weights[table.format("token_type")][torch.zeros_like(ids)],
             "bert.embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"bert.encoder.layer.{layer}."
        q, k, v = (split_heads(linear(x, name + "attention.self." + part), heads)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        o = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        x = norm(x + linear(o, name + "attention.output.dense"),
                 name + "attention.output.LayerNorm")
        up = F.gelu(linear(x, name + "intermediate.dense"))
        x = norm(x + linear(up, name + "output.dense"), name + "output.LayerNorm")
    return linear(torch.tanh(linear(x[:, 0], "bert.pooler.dense")), "classifier")


def random_gemma(config, seed):
    torch.manual_seed(seed)
    hidden, ffn, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = (config[key] * head for key in ("num_attention_heads", "num_key_value_heads"))
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        parts = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
                 "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden),
                 "mlp.down_proj": (hidden, ffn)}
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            parts[norm + "_layernorm"] = (hidden,)
        if config["model_type"] == "gemma3_text":
            parts["self_attn.q_norm"] = parts["self_attn.k_norm"] = (head,)
        for name, shape in parts.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    weights = _fill(shapes)
    for name, values in weights.items():
        if values.dim() == 1:
            values -= 1  # stored less one
    return weights


def random_bert(config, seed):
    torch.manual_seed(seed)
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    linears = {"bert.pooler.dense": (hidden, hidden),
               "classifier": (len(config["id2label"]), hidden)}
    norms = ["bert.embeddings.LayerNorm"]
    for layer in range(config["num_hidden_layers"]):
        name = f"bert.encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            linears[name + "attention.self." + part] = (hidden, hidden)
        linears[name + "attention.output.dense"] = (hidden, hidden)
        linears[name + "intermediate.dense"] = (ffn, hidden)
        linears[name + "output.dense"] = (hidden, ffn)
        norms += [name + "attention.output.LayerNorm", name + "output.LayerNorm"]
    shapes = {}
    for table, rows in (("word", "vocab_size"), ("position", "max_position_embeddings"),
                        ("token_type", "type_vocab_size")):
        shapes[f"bert.embeddings.{table}_embeddings.weight"] = (config[rows], hidden)
    for name in norms:
        shapes[name + ".weight"] = shapes[name + ".bias"] = (hidden,)
    for name, shape in linears.items():
        shapes[name + ".weight"] = shape
        shapes[name + ".bias"] = shape[:1]
    return _fill(shapes)


def random_llama(config, seed):
    torch.manual_seed(seed)
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
                 "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
                 "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden),
                 "mlp.down_proj": (hidden, ffn)}
        for name, shape in parts.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return _fill(shapes)


def random_gpt_oss(config, seed):
    torch.manual_seed(seed)
    hidden, ffn, experts = (config["hidden_size"], config["intermediate_size"],
                            config["num_local_experts"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        own = f"model.layers.{layer}."
        linears = {"self_attn.q_proj": (heads * config["head_dim"], hidden),
                   "self_attn.k_proj": (kv_heads * config["head_dim"], hidden),
                   "self_attn.v_proj": (kv_heads * config["head_dim"], hidden),
                   "self_attn.o_proj": (hidden, heads * config["head_dim"]),
                   "mlp.router": (experts, hidden)}
        for name, shape in linears.items():
            shapes[f"{own}{name}.weight"], shapes[f"{own}{name}.bias"] = shape, shape[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{own}{name}.weight"] = (hidden,)
        shapes[own + "self_attn.sinks"] = (heads,)
        shapes[own + "mlp.experts.gate_up_proj"] = (experts, hidden, 2 * ffn)
        shapes[own + "mlp.experts.gate_up_proj_bias"] = (experts, 2 * ffn)
        shapes[own + "mlp.experts.down_proj"] = (experts, ffn, hidden)
        shapes[own + "mlp.experts.down_proj_bias"] = (experts, hidden)
    weights = _fill(shapes)
    for name, values in weights.items():
        if name.endswith("sinks"):
            values *= 20  # as large as scores
        if name.endswith("gate_up_proj"):
            values *= 10  # some of gate and up beyond the clamp
    return weights


def random_gpt2(config, seed):
    torch.manual_seed(seed)
    hidden = config["n_embd"]
    shapes = {"transformer.wte.weight": (config["vocab_size"], hidden),
              "transformer.wpe.weight": (config["n_positions"], hidden)}
    norms, linears = ["transformer.ln_f"], {}
    for layer in range(config["n_layer"]):
        h = f"transformer.h.{layer}."
        norms += [h + "ln_1", h + "ln_2"]
        linears.update({h + "attn.c_attn": (hidden, 3 * hidden), h + "attn.c_proj": (hidden, hidden),
                        h + "mlp.c_fc": (hidden, 4 * hidden), h + "mlp.c_proj": (4 * hidden, hidden)})
    for name in norms:
        shapes[name + ".weight"] = shapes[name + ".bias"] = (hidden,)
    for name, shape in linears.items():
        shapes[name + ".weight"] = shape
        shapes[name + ".bias"] = shape[1:]
    return _fill(shapes)


def _fill(shapes):
    """Matrices normal, vectors near one or zero: nothing is left at a value that hides a mistake."""
    weights = {}
    for name, shape in shapes.items():
        values = 0.05 * torch.randn(shape)
        if len(shape) == 1 and name.endswith(".weight"):
            values = 1 + 2 * values
        weights[name] = values
    return weights

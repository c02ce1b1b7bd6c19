"""Llama and GPT-2 in PyTorch, from the public definitions of the architectures: Touvron et al. 2023
(RMSNorm, SwiGLU, rotary positions, grouped queries), Radford et al. 2019 (LayerNorm, GELU, learned
positions, Conv1D weights), with the tensor names of the published checkpoints. Parameters are a dict
of leaf tensors; meshplan's code was not looked at.
"""
import math

import torch
import torch.nn.functional as F


def causal_attention(q, k, v):
    """q, k, v: (batch, heads, tokens, size)"""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    tokens = q.shape[-2]
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def rotate(x, base):
    """Rotary positions: element i of the first half turns with element i of the second."""
    tokens, size = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = x[..., :size // 2], x[..., size // 2:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rms_norm(x, weight, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def llama(config, weights, ids):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    epsilon, base = config["rms_norm_eps"], config["rope_theta"]
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name):
            return weights[f"model.layers.{layer}.{name}.weight"]
        h = rms_norm(x, w("input_layernorm"), epsilon)
        q = rotate(split_heads(h @ w("self_attn.q_proj").T, heads), base)
        k = rotate(split_heads(h @ w("self_attn.k_proj").T, kv_heads), base)
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
        x = x + conv1d(causal_attention(q, k, v).transpose(1, 2).flatten(-2), h + "attn.c_proj")
        up = conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc")
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        x = x + conv1d(gelu, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].T


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

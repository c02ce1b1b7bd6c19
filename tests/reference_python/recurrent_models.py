"""Qwen3-Next and Nemotron-H in PyTorch, token by token, from the public definitions: Yang et al. 2024 (Gated
Delta Networks, equation 10), Dao and Gu 2024 (Transformers are SSMs, section 6: Mamba 2), Qwen Team 2025
(attention behind gates of its elements, a shared expert behind a gate, norms stored less one), NVIDIA 2025
(Nemotron-H: every layer is one half, attention without positions, squared ReLU), with the tensor names and
the order of rows of the published checkpoints. meshplan's code was not looked at.
"""
import math

import torch
import torch.nn.functional as F

from models import _fill, causal_attention, choose_experts, rms_norm, rotate, split_heads


def convolve(x, weight, bias=None):
    """Each channel of x (sequences, tokens, channels) by itself, with the taps before a token; then SiLU."""
    taps = weight.shape[-1]
    padded = F.pad(x.transpose(1, 2), (taps - 1, 0))
    return F.silu(F.conv1d(padded, weight, bias, groups=x.shape[-1])).transpose(1, 2)


def delta_rule(q, k, v, beta, decay):
    """q, k: (sequences, tokens, heads, keys), v: (.., values), beta and decay: (sequences, tokens, heads)"""
    q, k = (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    state = q.new_zeros(*q[:, 0].shape, v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = state * decay[:, t, :, None, None]
        error = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t, :, None] * error)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, 1)


def gated_delta_net(config, w, h):
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key, value, group = (config["linear_key_head_dim"], config["linear_value_head_dim"],
                         value_heads // key_heads)
    # The published rows go by key heads: its query, its key, its value heads' values, and their gates.
    q, k, v, z = (h @ w("linear_attn.in_proj_qkvz.weight").T).unflatten(-1, (key_heads, -1)).split(
        [key, key, group * value, group * value], -1)
    b, a = (h @ w("linear_attn.in_proj_ba.weight").T).unflatten(-1, (key_heads, -1)).split([group, group], -1)
    mixed = convolve(torch.cat([part.flatten(-2) for part in (q, k, v)], -1), w("linear_attn.conv1d.weight"))
    q, k, v = mixed.split([key_heads * key, key_heads * key, value_heads * value], -1)
    q, k = (x.unflatten(-1, (key_heads, key)).repeat_interleave(group, 2) for x in (q, k))
    decay = torch.exp(-w("linear_attn.A_log").exp() *
                      F.softplus(a.flatten(-2) + w("linear_attn.dt_bias")))
    o = delta_rule(q, k, v.unflatten(-1, (value_heads, value)), b.flatten(-2).sigmoid(), decay)
    o = rms_norm(o, w("linear_attn.norm.weight"), config["rms_norm_eps"])
    o = o * F.silu(z.flatten(-2).unflatten(-1, (value_heads, value)))
    return o.flatten(-2) @ w("linear_attn.out_proj.weight").T


def gated_attention(config, w, h):
    heads, kv_heads, size = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    rotated = int(size * config["partial_rotary_factor"])

    def turned(x, norm):
        x = rms_norm(x, 1 + w(f"self_attn.{norm}.weight"), config["rms_norm_eps"])
        return torch.cat([rotate(x[..., :rotated], config), x[..., rotated:]], -1)

    q, gate = split_heads(h @ w("self_attn.q_proj.weight").T, heads).chunk(2, -1)
    k = turned(split_heads(h @ w("self_attn.k_proj.weight").T, kv_heads), "k_norm")
    v = split_heads(h @ w("self_attn.v_proj.weight").T, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    o = causal_attention(turned(q, "q_norm"), k, v) * gate.sigmoid()
    return o.transpose(1, 2).flatten(-2) @ w("self_attn.o_proj.weight").T


def qwen_experts(config, w, h):
    def mlp(name):
        return (F.silu(h @ w(f"mlp.{name}.gate_proj.weight").T) * (h @ w(f"mlp.{name}.up_proj.weight").T)
                ) @ w(f"mlp.{name}.down_proj.weight").T

    chosen, experts = choose_experts((h @ w("mlp.gate.weight").T).softmax(-1), config["num_experts_per_tok"])
    chosen = chosen / chosen.sum(-1, keepdim=True)
    out = (h @ w("mlp.shared_expert_gate.weight").T).sigmoid() * mlp("shared_expert")
    for expert in range(config["num_experts"]):
        out = out + (chosen * (experts == expert)).sum(-1, keepdim=True) * mlp(f"experts.{expert}")
    return out


def is_full(config, layer):
    return (layer + 1) % config["full_attention_interval"] == 0


def qwen3_next(config, weights, ids):
    epsilon = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name):
            return weights[f"model.layers.{layer}.{name}"]
        mixer = gated_attention if is_full(config, layer) else gated_delta_net
        x = x + mixer(config, w, rms_norm(x, 1 + w("input_layernorm.weight"), epsilon))
        x = x + qwen_experts(config, w, rms_norm(x, 1 + w("post_attention_layernorm.weight"), epsilon))
    return rms_norm(x, 1 + weights["model.norm.weight"], epsilon) @ weights["lm_head.weight"].T


def random_qwen3_next(config, seed):
    torch.manual_seed(seed)
    hidden, heads, kv_heads, size = (config[k] for k in ("hidden_size", "num_attention_heads",
                                                         "num_key_value_heads", "head_dim"))
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    value_heads = config["linear_num_value_heads"]
    value = value_heads * config["linear_value_head_dim"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    mlps = {f"experts.{i}": config["moe_intermediate_size"] for i in range(config["num_experts"])}
    mlps["shared_expert"] = config["shared_expert_intermediate_size"]
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
                 "mlp.gate.weight": (config["num_experts"], hidden),
                 "mlp.shared_expert_gate.weight": (1, hidden)}
        if is_full(config, layer):
            parts.update({"self_attn.q_proj.weight": (2 * heads * size, hidden),
                          "self_attn.k_proj.weight": (kv_heads * size, hidden),
                          "self_attn.v_proj.weight": (kv_heads * size, hidden),
                          "self_attn.o_proj.weight": (hidden, heads * size),
                          "self_attn.q_norm.weight": (size,), "self_attn.k_norm.weight": (size,)})
        else:
            parts.update({"linear_attn.in_proj_qkvz.weight": (2 * key + 2 * value, hidden),
                          "linear_attn.in_proj_ba.weight": (2 * value_heads, hidden),
                          "linear_attn.conv1d.weight": (2 * key + value, 1, config["linear_conv_kernel_dim"]),
                          "linear_attn.dt_bias": (value_heads,), "linear_attn.A_log": (value_heads,),
                          "linear_attn.norm.weight": (config["linear_value_head_dim"],),
                          "linear_attn.out_proj.weight": (hidden, value)})
        for name, width in mlps.items():
            parts[f"mlp.{name}.gate_proj.weight"] = parts[f"mlp.{name}.up_proj.weight"] = (width, hidden)
            parts[f"mlp.{name}.down_proj.weight"] = (hidden, width)
        shapes.update({f"model.layers.{layer}.{name}": shape for name, shape in parts.items()})
    weights = _spread(_fill(shapes))
    for name, values in weights.items():
        if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            values -= 1  # stored less one
    return weights


def mamba2(config, w, h):
    heads, size, groups, states = (config[k] for k in ("mamba_num_heads", "mamba_head_dim", "n_groups",
                                                       "ssm_state_size"))
    inner = heads * size
    gate, mixed, steps = (h @ w("mixer.in_proj.weight").T).split(
        [inner, inner + 2 * groups * states, heads], -1)
    x, b, c = convolve(mixed, w("mixer.conv1d.weight"), w("mixer.conv1d.bias")).split(
        [inner, groups * states, groups * states], -1)
    x = x.unflatten(-1, (heads, size))
    b, c = (part.unflatten(-1, (groups, states)).repeat_interleave(heads // groups, 2) for part in (b, c))
    steps = F.softplus(steps + w("mixer.dt_bias"))
    decay = torch.exp(-w("mixer.A_log").exp() * steps)
    state = x.new_zeros(*x[:, 0].shape, states)
    outputs = []
    for t in range(x.shape[1]):
        state = (state * decay[:, t, :, None, None] +
                 torch.einsum("bhp,bhn->bhpn", steps[:, t, :, None] * x[:, t], b[:, t]))
        outputs.append(torch.einsum("bhpn,bhn->bhp", state, c[:, t]) + w("mixer.D")[:, None] * x[:, t])
    gated = torch.stack(outputs, 1).flatten(-2) * F.silu(gate)
    normed = rms_norm(gated.unflatten(-1, (groups, -1)), 1.0, config["layer_norm_epsilon"]).flatten(-2)
    return (normed * w("mixer.norm.weight")) @ w("mixer.out_proj.weight").T


def plain_attention(config, w, h):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    q, k, v = (split_heads(h @ w(f"mixer.{part}_proj.weight").T, count)
               for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    return causal_attention(q, k, v).transpose(1, 2).flatten(-2) @ w("mixer.o_proj.weight").T


def squared_mlp(config, w, h):
    return F.relu(h @ w("mixer.up_proj.weight").T).pow(2) @ w("mixer.down_proj.weight").T


HALVES = {"M": mamba2, "*": plain_attention, "-": squared_mlp}


def nemotron_h(config, weights, ids):
    epsilon = config["layer_norm_epsilon"]
    x = weights["backbone.embeddings.weight"][ids]
    for layer, letter in enumerate(config["hybrid_override_pattern"]):
        def w(name):
            return weights[f"backbone.layers.{layer}.{name}"]
        x = x + HALVES[letter](config, w, rms_norm(x, w("norm.weight"), epsilon))
    return rms_norm(x, weights["backbone.norm_f.weight"], epsilon) @ weights["lm_head.weight"].T


def random_nemotron_h(config, seed):
    torch.manual_seed(seed)
    hidden, ffn, size = (config[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    mamba_heads = config["mamba_num_heads"]
    inner, mixed = mamba_heads * config["mamba_head_dim"], 2 * config["n_groups"] * config["ssm_state_size"]
    parts = {"M": {"mixer.in_proj.weight": (2 * inner + mixed + mamba_heads, hidden),
                   "mixer.conv1d.weight": (inner + mixed, 1, config["conv_kernel"]),
                   "mixer.conv1d.bias": (inner + mixed,), "mixer.dt_bias": (mamba_heads,),
                   "mixer.A_log": (mamba_heads,), "mixer.D": (mamba_heads,),
                   "mixer.norm.weight": (inner,), "mixer.out_proj.weight": (hidden, inner)},
             "*": {"mixer.q_proj.weight": (heads * size, hidden),
                   "mixer.k_proj.weight": (kv_heads * size, hidden),
                   "mixer.v_proj.weight": (kv_heads * size, hidden),
                   "mixer.o_proj.weight": (hidden, heads * size)},
             "-": {"mixer.up_proj.weight": (ffn, hidden), "mixer.down_proj.weight": (hidden, ffn)}}
    shapes = {"backbone.embeddings.weight": (config["vocab_size"], hidden),
              "backbone.norm_f.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    for layer, letter in enumerate(config["hybrid_override_pattern"]):
        shapes[f"backbone.layers.{layer}.norm.weight"] = (hidden,)
        shapes.update({f"backbone.layers.{layer}.{name}": shape for name, shape in parts[letter].items()})
    return _spread(_fill(shapes))


def _spread(weights):
    """Taps and decays as far apart as in trained models."""
    for name, values in weights.items():
        if name.endswith("conv1d.weight") or name.endswith(("A_log", "dt_bias", ".D")):
            values *= 10
    return weights

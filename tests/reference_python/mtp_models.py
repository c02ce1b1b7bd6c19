"""Multi-token prediction in PyTorch, from section 2.2 of DeepSeek-V3's report (arXiv 2412.19437) and the
tensor names of its published checkpoint: module k is layer num_hidden_layers + k - 1. Its hidden states are
the normed ones, as vLLM and SGLang serve the checkpoint. meshplan's code was not looked at.
"""
import torch
import torch.nn.functional as F

import models
from models import deepseek_attention, deepseek_experts, rms_norm

COEFFICIENT = 0.1  # lambda; meshplan's default


def deepseek_module(config, w, hidden, embedded):
    """The hidden states of a module (sequences, tokens, width), from those before it."""
    epsilon = config["rms_norm_eps"]
    both = torch.cat([rms_norm(embedded, w("enorm"), epsilon), rms_norm(hidden, w("hnorm"), epsilon)], -1)
    x = both @ w("eh_proj").T
    x = x + deepseek_attention(config, w, rms_norm(x, w("input_layernorm"), epsilon))
    x = x + deepseek_experts(config, w, rms_norm(x, w("post_attention_layernorm"), epsilon))
    return rms_norm(x, w("shared_head.norm"), epsilon)


def prediction_loss(config, weights, ids, targets):
    """What the modules add to the loss. Sequences end for them: what they would need of tokens behind does
    not count, and no position before sees it."""
    without_head = {**weights, "lm_head.weight": torch.eye(config["hidden_size"], device=ids.device)}
    hidden = models.deepseek_v3(config, without_head, ids)
    tokens = torch.cat([ids, targets[:, -1:]], 1)
    count = config["num_nextn_predict_layers"]
    total = 0
    for k in range(1, count + 1):
        def w(name):
            return weights[f"model.layers.{config['num_hidden_layers'] + k - 1}.{name}.weight"]
        known = ids.shape[1] - k  # position i needs the tokens i + k and i + k + 1
        embedded = weights["model.embed_tokens.weight"][tokens[:, k:k + known]]
        hidden = deepseek_module(config, w, hidden[:, :known], embedded)
        logits = hidden @ weights["lm_head.weight"].T
        total = total + F.cross_entropy(logits.flatten(0, -2), tokens[:, k + 1:k + 1 + known].flatten())
    return COEFFICIENT / count * total


def random_deepseek_v3(config, seed):
    hidden, layers, count = (config[k] for k in
                             ("hidden_size", "num_hidden_layers", "num_nextn_predict_layers"))
    weights = models.random_deepseek_v3({**config, "num_hidden_layers": layers + count}, seed)
    parts = {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden),
             "shared_head.norm": (hidden,)}
    return weights | models._fill({f"model.layers.{layers + k}.{name}.weight": shape
                                   for k in range(count) for name, shape in parts.items()})

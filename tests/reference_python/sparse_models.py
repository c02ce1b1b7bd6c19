"""DeepSeek-V3.2 and GLM-5 in PyTorch, token by token, from the public definitions: DeepSeek-AI 2025
(DeepSeek-V3.2-Exp, section 1: an indexer chooses the keys of each token, section 2.1: it learns, from inputs
that are detached, the distribution of the attention over what it chose), with what the published model adds
to the paper's equations: scores divided by sqrt(heads x size), a LayerNorm of the keys, positions of the
first qk_rope_head_dim elements, in halves where those of the attention are in pairs (GLM-5: pairs too). The
Hadamard transform of queries and keys there changes no product and is left out, as is FP8. Elsewhere it is
DeepSeek-V3. From meshplan's code come only the rule of equal scores, which the paper has not (the earlier
key is chosen), and that the indexer's loss is a mean over tokens.
"""
import math

import torch
import torch.nn.functional as F

from models import (_fill, deepseek_experts, kink_distances, latent_parts, random_deepseek_v3, rms_norm,
                    rotate, split_heads)


def index_scores(config, w, h, low):
    """Scores (sequences, queries, keys), of keys after their query too, and the products that they are sums
    of (.., heads). low: the compressed queries"""
    heads, size, rope = (config[k] for k in ("index_n_heads", "index_head_dim", "qk_rope_head_dim"))

    def turn(x):
        first, rest = x[..., :rope], x[..., rope:]
        if config.get("indexer_rope_interleave"):
            first = torch.cat([first[..., ::2], first[..., 1::2]], -1)
        return torch.cat([rotate(first, config), rest], -1)

    q = turn(split_heads(low @ w("self_attn.indexer.wq_b").T, heads))
    k = turn(F.layer_norm(h @ w("self_attn.indexer.wk").T, (size,), w("self_attn.indexer.k_norm"),
                          w("self_attn.indexer.k_norm", "bias"), 1e-6))
    products = torch.einsum("bhtd,bsd->btsh", q, k)
    weights = h @ w("self_attn.indexer.weights_proj").T
    return torch.einsum("btsh,bth->bts", products.relu(), weights) / (heads * size) ** 0.5, products


def choose_keys(scores, products, count):
    """Where the `count` highest are of one query's scores (sequences, keys it sees), of equal ones the first.
    products: those that the scores sum; of a key, all may be negative, and so scores of 0 are often equal."""
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)
    chosen = order[:, :count]
    seen = scores.shape[-1]
    if seen > 1:  # a single key is chosen, and learns nothing, whatever its score is
        kink_distances.append(products[(scores == 0).scatter(-1, chosen, True)].abs().min().item())
    if seen > count:  # a gap is a part of the largest score, for so are rounding errors
        last, first_left = ranked[:, count - 1], ranked[:, count]
        gaps = (last - first_left) / ranked.abs().amax(-1)
        kink_distances.append(gaps.masked_fill((last == 0) & (first_left == 0), math.inf).min().item())
    return chosen


def sparse_attention(config, w, h):
    """@returns what it adds to the layer's input, and the indexer's loss: a mean over the tokens"""
    low, q, k, v, scale = latent_parts(config, w, h)
    scores, products = index_scores(config, w, h.detach(), low.detach())
    outputs, losses = [], []
    for t in range(h.shape[1]):
        chosen = choose_keys(*(x.detach()[:, t, :t + 1] for x in (scores, products)), config["index_topk"])
        keys, values = (x.gather(2, chosen[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
                        for x in (k, v))
        shares = (torch.einsum("bhd,bhkd->bhk", q[:, :, t], keys) * scale).softmax(-1)
        outputs.append(torch.einsum("bhk,bhkd->bhd", shares, values).flatten(-2))
        target = shares.detach().sum(1)
        target = target / target.sum(-1, keepdim=True)
        guess = scores[:, t].gather(-1, chosen).log_softmax(-1)
        losses.append((target * (target.log() - guess)).sum(-1))
    return torch.stack(outputs, 1) @ w("self_attn.o_proj").T, torch.stack(losses).mean()


def _logits_and_losses(config, weights, ids):
    epsilon, indexer_loss = config["rms_norm_eps"], 0.0
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def w(name, kind="weight"):
            return weights[f"model.layers.{layer}.{name}.{kind}"]
        attended, loss = sparse_attention(config, w, rms_norm(x, w("input_layernorm"), epsilon))
        x, indexer_loss = x + attended, indexer_loss + loss
        h = rms_norm(x, w("post_attention_layernorm"), epsilon)
        if layer < config["first_k_dense_replace"]:
            x = x + (F.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
        else:
            x = x + deepseek_experts(config, w, h)
    return rms_norm(x, weights["model.norm.weight"], epsilon) @ weights["lm_head.weight"].T, indexer_loss


def deepseek_v32(config, weights, ids):
    return _logits_and_losses(config, weights, ids)[0]


def indexer_loss(config, weights, ids, _targets):
    """The sum over the layers: what is minimized beside the cross entropy."""
    return _logits_and_losses(config, weights, ids)[1]


def random_deepseek_v32(config, seed):
    """Attention and indexers far from uniform, so that what is chosen and what is learned matters."""
    hidden, ffn, rank = (config[k] for k in ("hidden_size", "intermediate_size", "q_lora_rank"))
    heads, size = config["index_n_heads"], config["index_head_dim"]
    weights = random_deepseek_v3(config, seed)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        shapes = {"self_attn.indexer.wq_b.weight": (heads * size, rank),
                  "self_attn.indexer.wk.weight": (size, hidden),
                  "self_attn.indexer.weights_proj.weight": (heads, hidden),
                  "self_attn.indexer.k_norm.weight": (size,), "self_attn.indexer.k_norm.bias": (size,)}
        if layer < config["first_k_dense_replace"]:
            weights = {n: values for n, values in weights.items() if not n.startswith(name + "mlp.")}
            shapes.update({"mlp.gate_proj.weight": (ffn, hidden), "mlp.up_proj.weight": (ffn, hidden),
                           "mlp.down_proj.weight": (hidden, ffn)})
        weights.update(_fill({name + part: shape for part, shape in shapes.items()}))
    for name, values in weights.items():
        if name.endswith(("indexer.wq_b.weight", "indexer.weights_proj.weight", "indexer.k_norm.bias",
                          "self_attn.q_b_proj.weight", "self_attn.kv_b_proj.weight")):
            values *= 5
    return weights

"""Trains the same random Hugging Face checkpoint on the same tokens with meshplan and with PyTorch:
the losses of ten AdamW steps agree to 1e-5, and the weights that meshplan exports to 1e-4.
Usage: compare_training.py MESHPLAN
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import models
import safetensors_io

STEPS, SEQUENCES, TOKENS = 10, 4, 32
# Closer to a tie of two experts or to the bound of a clamp, rounding errors decide what follows: within
# 2e-6 of one, PyTorch's single and double precision (and its AVX2 and AVX-512 products) part by up to
# 0.03; from 6e-6 on they agree to 2e-6.
KINK_DISTANCE = 2e-5
# Adam's epsilon is well above the rounding errors of a gradient (1e-8), which a smaller one would divide
# by themselves: a weight with no gradient to speak of then moves by a tenth of the learning rate.
OPTIMIZER = {"kind": "adamw", "learning_rate": 3e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-5,
             "weight_decay": 0.1, "clip_norm": 1.0, "schedule": "cosine", "warmup_steps": 2,
             "decay_steps": 10, "minimum_ratio": 0.1}
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 300, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 64,
        "vocab_size": 300, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True}
GPT_OSS = {"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 4, "head_dim": 16,
           "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 48,
           "vocab_size": 300, "num_local_experts": 4, "num_experts_per_tok": 2,
           "sliding_window": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
           "rope_theta": 10000.0, "attention_bias": True, "router_aux_loss_coef": 0.0,
           "tie_word_embeddings": False}
GEMMA2 = {"model_type": "gemma2", "hidden_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "intermediate_size": 96, "vocab_size": 300, "hidden_activation": "gelu_pytorch_tanh",
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "attention_bias": False, "query_pre_attn_scalar": 9, "sliding_window": 8,
          "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
GEMMA3 = {**GEMMA2, "model_type": "gemma3_text", "attn_logit_softcapping": None,
          "final_logit_softcapping": None, "sliding_window_pattern": 3, "rope_local_base_freq": 100.0}
BERT = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
        "intermediate_size": 96, "vocab_size": 300, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "id2label": {"0": "a", "1": "b", "2": "c"}}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 300,
            "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-2,
            "rope_theta": 10000.0, "attention_bias": False, "tie_word_embeddings": False,
            "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
            "v_head_dim": 12, "n_routed_experts": 4, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "moe_intermediate_size": 48, "first_k_dense_replace": 0,
            "scoring_func": "sigmoid", "topk_method": "greedy", "norm_topk_prob": True,
            "routed_scaling_factor": 1.5}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
        "beta_slow": 0.5}


def scaled(config, **scaling):
    return {**config, "rope_scaling": scaling}


CASES = [("llama", LLAMA, models.llama, models.random_llama, [[], ["--tp", "2", "--pp", "2"]]),
         ("tied llama", {**LLAMA, "tie_word_embeddings": True}, models.llama, models.random_llama,
          [["--pp", "2", "--tp", "2", "--sp"]]),
         ("gpt-oss", GPT_OSS, models.gpt_oss, models.random_gpt_oss,
          [[], ["--dp", "2", "--ep", "2"], ["--tp", "2", "--pp", "2", "--sp", "--etp", "2"]]),
         ("gpt-oss, rope yarn", scaled(GPT_OSS, **YARN, truncate=False), models.gpt_oss,
          models.random_gpt_oss, [[]]),
         ("gpt2", GPT2, models.gpt2, models.random_gpt2, [[], ["--tp", "2", "--pp", "2"]]),
         ("gpt2, scores not scaled", {**GPT2, "scale_attn_weights": False}, models.gpt2,
          models.random_gpt2, [[]]),
         ("llama, rope llama3",
          scaled(LLAMA, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=16),
          models.llama, models.random_llama, [[], ["--cp", "2"]]),
         ("llama, rope linear", scaled(LLAMA, rope_type="linear", factor=4.0), models.llama,
          models.random_llama, [[]]),
         ("llama, rope dynamic",
          scaled({**LLAMA, "max_position_embeddings": 20}, rope_type="dynamic", factor=4.0),
          models.llama, models.random_llama, [[]]),
         ("llama, rope yarn", scaled(LLAMA, **YARN, truncate=False), models.llama,
          models.random_llama, [["--tp", "2"]]),
         ("llama, rope yarn with a given factor", scaled(LLAMA, **YARN, attention_factor=0.8),
          models.llama, models.random_llama, [[]]),
         ("deepseek_v3, rope yarn", scaled(DEEPSEEK, **YARN, mscale=0.5, mscale_all_dim=1.0),
          models.deepseek_v3, models.random_deepseek_v3, [[], ["--tp", "2", "--sp"]]),
         ("gemma2", GEMMA2, models.gemma, models.random_gemma,
          [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("gemma3", scaled(GEMMA3, rope_type="linear", factor=8.0), models.gemma,
          models.random_gemma, [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("bert", BERT, models.bert, models.random_bert,
          [[], ["--tp", "2", "--pp", "2", "--sp"]])]


def learning_rate(step):
    """Linear warm-up, then cosine to a tenth."""
    peak, warmup = OPTIMIZER["learning_rate"], OPTIMIZER["warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    low = peak * OPTIMIZER["minimum_ratio"]
    progress = (step - warmup) / (OPTIMIZER["decay_steps"] - warmup)
    return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * progress))


def make_data(config):
    """One batch is all the data, so that the order of the sequences does not matter. A classifier's
    file has the class of a sequence after its tokens. Returns the file's tokens, ids and targets."""
    if "id2label" in config:
        ids = torch.randint(config["vocab_size"], (SEQUENCES, TOKENS))
        targets = torch.arange(SEQUENCES)[:, None] % len(config["id2label"])
        return torch.cat([ids, targets], 1).flatten(), ids, targets
    tokens = torch.randint(config["vocab_size"], (SEQUENCES * TOKENS + 1,))
    return tokens, tokens[:-1].view(SEQUENCES, TOKENS), tokens[1:].view(SEQUENCES, TOKENS)


def train(forward, config, weights, ids, targets):
    """Losses of STEPS steps on the same batch; `weights` are trained in place."""
    decayed = [n for n, w in weights.items() if w.dim() > 1 and not n.endswith("bias")]
    matrices = [weights[n] for n in decayed]
    vectors = [w for n, w in weights.items() if n not in decayed]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": OPTIMIZER["weight_decay"]},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
                                  eps=OPTIMIZER["epsilon"])
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        logits = forward(config, weights, ids)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matrices + vectors, OPTIMIZER["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_plan(meshplan, model, plan_file, flags):
    run(meshplan, "simulate", "--model", model, "--cluster", "cpu-host", "--global-batch",
        str(SEQUENCES), "--seq-len", str(TOKENS), "--precision", "fp32", "--out", plan_file, *flags)
    with open(plan_file) as file:
        plan = json.load(file)
    plan["workload"]["optimizer"].update(OPTIMIZER)
    plan["expert_imbalance"] = 8  # a random router may send any rank most of the rows
    with open(plan_file, "w") as file:
        json.dump(plan, file)


def make_case(config, forward, make_random):
    """Random weights and data whose training does not depend on rounding, and PyTorch's training on
    them. Returns (initial weights, trained weights, tokens of the data file, losses).
    """
    for seed in range(3, 100):
        weights = make_random(config, seed)
        initial = {n: w.clone() for n, w in weights.items()}
        tokens, ids, targets = make_data(config)
        for weight in weights.values():
            weight.requires_grad_(True)
        models.kink_distances.clear()
        losses = train(forward, config, weights, ids, targets)
        if min(models.kink_distances, default=math.inf) >= KINK_DISTANCE:
            return initial, weights, tokens, losses
    sys.exit(f"every seed comes within {KINK_DISTANCE} of a kink")


def compare(meshplan, folder, case):
    name, config, forward, make_random, plans = case
    source = os.path.join(folder, "source")
    os.makedirs(source)
    initial, weights, tokens, expected = make_case(config, forward, make_random)
    safetensors_io.save_file({n: w.numpy() for n, w in initial.items()},
                             os.path.join(source, "model.safetensors"))
    with open(os.path.join(source, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(source, "tokenizer.json"), "w") as file:
        file.write('{"version": "1.0"}')
    data = os.path.join(folder, "tokens.u16")
    tokens.numpy().astype("<u2").tofile(data)
    assert expected[-1] < 0.9 * expected[0], expected
    worst = 0.0
    for number, flags in enumerate(plans):
        plan = os.path.join(folder, f"plan{number}.json")
        make_plan(meshplan, os.path.join(source, "config.json"), plan, flags)
        checkpoints = os.path.join(folder, f"checkpoints{number}")
        losses = json.loads(run(meshplan, "run", plan, "--steps", str(STEPS), "--data", data,
                                "--init-from", source, "--checkpoint-dir", checkpoints, "--json",
                                "--any-placement"))["losses"]
        assert len(losses) == STEPS, losses
        difference = max(abs(a - b) for a, b in zip(losses, expected))
        exported = os.path.join(folder, f"exported{number}")
        run(meshplan, "checkpoint", "export", checkpoints, "--to", "hf", "--out", exported)
        back = safetensors_io.load_folder(exported)
        assert set(back) == set(weights), set(back) ^ set(weights)
        moved = max(np.abs(back[n] - w.detach().numpy()).max() for n, w in weights.items())
        assert os.path.exists(os.path.join(exported, "tokenizer.json"))
        print(f"{name} {' '.join(flags) or 'one rank'}: losses {expected[0]:.4f} -> "
              f"{expected[-1]:.4f}, largest difference {difference:.1e}, of a weight {moved:.1e}")
        assert difference <= 1e-5, (losses, expected)
        assert moved <= 1e-4, moved
        worst = max(worst, difference)
    return worst


def main():
    torch.set_num_threads(1)
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            compare(sys.argv[1], folder, case)
    print("all agree")


main()

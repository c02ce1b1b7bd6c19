"""Trains the same random Hugging Face checkpoint on the same tokens with meshplan and with PyTorch:
the losses of ten AdamW steps agree to 1e-5, and the weights that meshplan exports to 1e-4. With --device
cuda both train on the GPU, in fp32 without TF32. Prints a line for each model and plan as it goes.
Exit code: 0 all agree, 1 some do not or failed, 77 PyTorch has no such device.
"""
import argparse
import math
import os
import sys
import tempfile

import numpy as np
import torch

import models
import mtp_models
import recurrent_models
import safetensors_io
import sparse_models
import training

STEPS, SEQUENCES, TOKENS = 10, 4, 32
LOSS_BOUND, WEIGHT_BOUND = 1e-5, 1e-4
# Closer to a tie of two experts or keys or to the bound of a clamp, rounding errors decide what follows: within
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
# A quarter of the keys, so that most tokens have some to leave out. Without experts: first_k_dense_replace.
DEEPSEEK_V32 = {**DEEPSEEK, "model_type": "deepseek_v32", "first_k_dense_replace": 2, "index_n_heads": 4,
                "index_head_dim": 16, "index_topk": 8}
GLM_DSA = {**DEEPSEEK_V32, "model_type": "glm_moe_dsa", "first_k_dense_replace": 1,
           "indexer_rope_interleave": True, "rope_interleave": True}
DEEPSEEK_MTP = {**DEEPSEEK, "num_nextn_predict_layers": 1}
# Outputs of nearly empty states are normed: with an epsilon of 1e-5 PyTorch's own losses in fp32 and fp64
# part by 7e-5.
QWEN3_NEXT = {"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4, "head_dim": 16,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "hidden_act": "silu",
              "max_position_embeddings": 64, "rms_norm_eps": 1e-2, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.25, "full_attention_interval": 4, "linear_num_key_heads": 2,
              "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
              "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
              "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32, "norm_topk_prob": True,
              "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.0,
              "tie_word_embeddings": False, "attention_bias": False}
NEMOTRON_H = {"model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "M-M*-M",
              "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "intermediate_size": 96, "vocab_size": 300, "mlp_hidden_act": "relu2",
              "max_position_embeddings": 64, "layer_norm_epsilon": 1e-5, "mamba_num_heads": 8,
              "mamba_head_dim": 12, "ssm_state_size": 20, "n_groups": 2, "conv_kernel": 4,
              "use_conv_bias": True, "chunk_size": 8, "tie_word_embeddings": False}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
        "beta_slow": 0.5}


def scaled(config, **scaling):
    return {**config, "rope_scaling": scaling}


# What is minimized beside the cross entropy, by the key of a config that has it.
MORE_LOSSES = {"index_topk": sparse_models.indexer_loss,
               "num_nextn_predict_layers": mtp_models.prediction_loss}

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
         ("deepseek_v32", DEEPSEEK_V32, sparse_models.deepseek_v32, sparse_models.random_deepseek_v32,
          [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("deepseek_v32, experts, rope yarn",
          scaled({**DEEPSEEK_V32, "first_k_dense_replace": 1}, **YARN, mscale=1.0, mscale_all_dim=1.0),
          sparse_models.deepseek_v32, sparse_models.random_deepseek_v32, [["--dp", "2", "--ep", "2"]]),
         ("glm_moe_dsa", GLM_DSA, sparse_models.deepseek_v32, sparse_models.random_deepseek_v32, [[]]),
         ("deepseek_v3, a prediction module", DEEPSEEK_MTP, models.deepseek_v3,
          mtp_models.random_deepseek_v3,
          [[], ["--tp", "2", "--pp", "2", "--sp"], ["--dp", "2", "--ep", "2", "--zero", "1"],
           ["--pp", "2", "--dp", "2", "--zero", "3"]]),
         ("gemma2", GEMMA2, models.gemma, models.random_gemma,
          [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("gemma3", scaled(GEMMA3, rope_type="linear", factor=8.0), models.gemma,
          models.random_gemma, [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("bert", BERT, models.bert, models.random_bert,
          [[], ["--tp", "2", "--pp", "2", "--sp"]]),
         ("qwen3_next", QWEN3_NEXT, recurrent_models.qwen3_next, recurrent_models.random_qwen3_next,
          [[], ["--tp", "2", "--pp", "2", "--sp"], ["--dp", "2", "--ep", "2"]]),
         ("nemotron_h", NEMOTRON_H, recurrent_models.nemotron_h, recurrent_models.random_nemotron_h,
          [[], ["--tp", "2", "--pp", "2", "--sp"]])]


def make_data(config):
    """One batch is all the data, so that the order of the sequences does not matter. A classifier's
    file has the class of a sequence after its tokens. Returns the file's tokens, ids and targets."""
    if "id2label" in config:
        ids = torch.randint(config["vocab_size"], (SEQUENCES, TOKENS))
        targets = torch.arange(SEQUENCES)[:, None] % len(config["id2label"])
        return torch.cat([ids, targets], 1).flatten(), ids, targets
    tokens = torch.randint(config["vocab_size"], (SEQUENCES * TOKENS + 1,))
    return tokens, tokens[:-1].view(SEQUENCES, TOKENS), tokens[1:].view(SEQUENCES, TOKENS)


def make_case(config, forward, make_random, device):
    """Random weights and data whose training does not depend on rounding, and PyTorch's training on
    them. Returns (initial weights, trained weights, tokens of the data file, losses).
    """
    for seed in range(3, 100):
        weights = {n: w.to(device) for n, w in make_random(config, seed).items()}
        initial = {n: w.clone() for n, w in weights.items()}
        tokens, ids, targets = make_data(config)
        for weight in weights.values():
            weight.requires_grad_(True)
        models.kink_distances.clear()
        losses, _ = training.train(forward, config, weights, ids.to(device), targets.to(device),
                                   OPTIMIZER, STEPS,
                                   more_losses=[loss for key, loss in MORE_LOSSES.items() if config.get(key)])
        if min(models.kink_distances, default=math.inf) >= KINK_DISTANCE:
            break
    else:
        raise training.Failure(f"every seed comes within {KINK_DISTANCE} of a kink")
    if not losses[-1] < 0.9 * losses[0]:
        raise training.Failure(f"PyTorch's losses do not fall: {losses}")
    return initial, weights, tokens, losses


def compare_plan(meshplan, folder, source, data, weights, expected, flags, run_flags):
    """@returns the largest difference of a loss, and of an exported weight"""
    plan = os.path.join(folder, "plan.json")
    training.make_plan(meshplan, os.path.join(source, "config.json"), plan, (SEQUENCES, TOKENS), OPTIMIZER,
                       "fp32", flags)
    checkpoints, exported = os.path.join(folder, "checkpoints"), os.path.join(folder, "exported")
    losses = training.train_with_meshplan(meshplan, plan, source, data, STEPS, "--checkpoint-dir", checkpoints,
                                          *run_flags)["losses"]
    training.run(meshplan, "checkpoint", "export", checkpoints, "--to", "hf", "--out", exported)
    back = safetensors_io.load_folder(exported)
    if set(back) != set(weights):
        raise training.Failure(f"exported or not: {sorted(set(back) ^ set(weights))}")
    if not os.path.exists(os.path.join(exported, "tokenizer.json")):
        raise training.Failure("the tokenizer is not exported")
    difference = max(abs(a - b) for a, b in zip(losses, expected))
    moved = max(np.abs(back[n] - w.detach().cpu().numpy()).max() for n, w in weights.items())
    return difference, moved


def compare_adapters(options, device):
    """Trains adapters (LoRA) with meshplan, exports the weights with the adapters added to them, and lets
    PyTorch, which knows of none, compute the loss of these: that of meshplan's next step.
    @returns do all agree?"""
    agree = True
    for name, config, forward, make_random, flags in (
            ("llama, adapters", LLAMA, models.llama, models.random_llama, []),
            ("llama, adapters", LLAMA, models.llama, models.random_llama, ["--tp", "2", "--dp", "2", "--sp"]),
            ("gpt2, adapters of attention", GPT2, models.gpt2, models.random_gpt2,
             ["--pp", "2", "--lora-modules", "qkv_proj,o_proj"])):
        with tempfile.TemporaryDirectory() as folder:
            source, data, plan, saved, exported = (
                os.path.join(folder, part) for part in ("source", "tokens.u16", "plan.json", "saved", "exported"))
            tokens, ids, targets = make_data(config)
            training.write_hugging_face(source, config, make_random(config, 3))
            training.write_tokens(data, tokens)
            try:
                training.make_plan(options.meshplan, os.path.join(source, "config.json"), plan,
                                   (SEQUENCES, TOKENS), OPTIMIZER, "fp32",
                                   ["--lora", "4", "--lora-alpha", "8", *flags])
                run_flags = ["--device", device.type, "--checkpoint-dir", saved, "--checkpoint-every", str(STEPS)]
                losses = training.train_with_meshplan(options.meshplan, plan, source, data, STEPS + 1,
                                                      *run_flags)["losses"]
                step = os.path.join(saved, f"step-{STEPS}")
                training.run(options.meshplan, "checkpoint", "export", step, "--to", "hf", "--out", exported)
                weights = {n: torch.from_numpy(w).to(device)
                           for n, w in safetensors_io.load_folder(exported).items()}
            except Exception as error:
                report(name, flags, f"FAILED: {error}")
                agree = False
                continue
            logits = forward(config, weights, ids.to(device))
            expected = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.to(device).flatten()).item()
            right = abs(losses[-1] - expected) <= LOSS_BOUND and losses[-1] < losses[0] - 0.01
            agree = agree and right
            report(name, flags, f"{losses[0]:.4f} -> {losses[-1]:.4f}  {abs(losses[-1] - expected):10.1e} {'':8}  "
                                f"{'agrees' if right else 'DIFFERS'}")
    return agree


def report(name, flags, result):
    print(f"{name:<36} {' '.join(flags) or 'one rank':<32} {result.strip()}", flush=True)


def compare(options, device, case):
    """Prints a line for each plan. @returns do all agree?"""
    name, config, forward, make_random, plans = case
    on_gpu = device.type == "cuda"
    if on_gpu and not options.ranks:
        plans = [[]]
    agree = True
    with tempfile.TemporaryDirectory() as folder:
        source, data = os.path.join(folder, "source"), os.path.join(folder, "tokens.u16")
        try:
            initial, weights, tokens, expected = make_case(config, forward, make_random, device)
        except Exception as error:  # of PyTorch too: the other models are still compared
            report(name, [], f"FAILED: {error}")
            return False
        training.write_hugging_face(source, config, initial)
        with open(os.path.join(source, "tokenizer.json"), "w") as file:
            file.write('{"version": "1.0"}')
        training.write_tokens(data, tokens)
        for number, flags in enumerate(plans):
            own = os.path.join(folder, str(number))
            os.makedirs(own)
            run_flags = ["--device", device.type]
            if on_gpu and flags:
                run_flags += ["--comm", "mpi"]
            try:
                difference, moved = compare_plan(options.meshplan, own, source, data, weights, expected,
                                                 flags, run_flags)
            except Exception as error:
                report(name, flags, f"FAILED: {error}")
                agree = False
                continue
            right = difference <= LOSS_BOUND and moved <= WEIGHT_BOUND
            agree = agree and right
            report(name, flags, f"{expected[0]:.4f} -> {expected[-1]:.4f}  {difference:10.1e} {moved:8.1e}  "
                                f"{'agrees' if right else 'DIFFERS'}")
    return agree


def family(case):
    """"llama", "gpt_oss", "gemma3": the model_type of its config.json, as far as it names a family."""
    return case[1]["model_type"].removesuffix("_text")


def chosen_cases(families, parser):
    if not families:
        return CASES
    asked = [name.replace("-", "_") for name in families.split(",")]
    known = list(dict.fromkeys(family(case) for case in CASES))
    for name in asked:
        if name not in known:
            parser.error(f"--families {name}: there is no such family; there are {','.join(known)}")
    return [case for case in CASES if family(case) in asked]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("meshplan", help="the program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--families", help="llama,gpt2,...; default: all")
    parser.add_argument("--ranks", action="store_true",
                        help="with --device cuda: plans of several ranks too, by --comm mpi")
    options = parser.parse_args()
    cases = chosen_cases(options.families, parser)
    device = training.choose_device(options.device)
    torch.set_num_threads(1)
    print(f"{training.describe(device)}; losses of {STEPS} steps may differ by {LOSS_BOUND:.0e}, weights by "
          f"{WEIGHT_BOUND:.0e}")
    report("model", ["plan"], f"{'loss':<18} {'difference':>10} {'weight':>8}")
    differ = [case[0] for case in cases if not compare(options, device, case)]
    if not options.families and not compare_adapters(options, device):
        differ.append("adapters")
    print(f"{len(differ)} of {len(cases)} models differ or failed: {'; '.join(differ)}" if differ else "all agree")
    sys.exit(1 if differ else 0)


main()

"""Trains GPT-2 in bf16 with meshplan and with PyTorch (autocast, as bench/pytorch_step.py) from the same
weights on the same tokens: in each of 20 steps the losses and the gradient norms agree to 1 %.

Norms are those of all gradients before clipping. The weights start as GPT-2's (normal, deviation 0.02,
projections of residual branches divided by sqrt(2 layers), biases 0), but those of queries and keys with
1/sqrt(width), so that scores have a deviation of 1: from 0.02 attention starts uniform, and its scale
could be anything. All steps train on one batch of random tokens. Learning rates are small enough for
rounding in bf16 not to make the two runs part: at 3e-5 the norms of GPT-2 124M differ by 2 % after 9 steps,
for its gradient then turns around from step to step. Adam's epsilon is above the rounding of a gradient.
Exit code: 0 both agree, 1 they do not or a command failed, 77 PyTorch has no such device.
"""
import argparse
import math
import os
import sys
import tempfile

import torch

import models
import training

BOUND = 0.01
OPTIMIZER = {"kind": "adamw", "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-5,
             "weight_decay": 0.1, "clip_norm": 1.0, "schedule": "constant", "warmup_steps": 2}
# Sizes, sequences and tokens of a step, learning rate.
MODELS = {"gpt2-124m": ({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                         "vocab_size": 50257}, (8, 512), 1e-5),
          "tiny": ({"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64, "vocab_size": 512}, (8, 64),
                   2e-4)}


def config_of(sizes):
    return {"model_type": "gpt2", "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True, **sizes}


def initial_weights(config):
    weights = models.random_gpt2(config, seed=1)
    for name, values in weights.items():
        if name.endswith("bias"):
            values.zero_()
        elif values.dim() == 1:
            values.fill_(1)
        else:
            ends_branch = name.endswith("c_proj.weight")
            values.normal_(std=0.02 / (math.sqrt(2 * config["n_layer"]) if ends_branch else 1))
        if name.endswith("c_attn.weight"):  # (width, 3 width): queries, keys, values
            width = config["n_embd"]
            values[:, :2 * width].normal_(std=width ** -0.5)
    return weights


def compare(ours, theirs):
    """Prints step by step. @returns the largest relative differences of losses and norms"""
    print(f"{'step':>4}  {'loss':>9} {'PyTorch':>9} {'differs':>8}  {'norm':>9} {'PyTorch':>9} {'differs':>8}")
    worst = [0.0, 0.0]
    for step, values in enumerate(zip(ours["losses"], theirs[0], ours["gradient_norms"], theirs[1]), 1):
        differences = [abs(a / b - 1) for a, b in (values[:2], values[2:])]
        worst = [max(pair) for pair in zip(worst, differences)]
        print(f"{step:>4}  {values[0]:9.4f} {values[1]:9.4f} {differences[0]:8.1e}  "
              f"{values[2]:9.4f} {values[3]:9.4f} {differences[1]:8.1e}", flush=True)
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("meshplan", help="the program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sequences", type=int, help="of a step")
    parser.add_argument("--length", type=int, help="tokens of a sequence")
    options = parser.parse_args()
    device = training.choose_device(options.device)
    sizes, (sequences, length), rate = MODELS[options.model]
    optimizer = {**OPTIMIZER, "learning_rate": rate}
    config, batch = config_of(sizes), (options.sequences or sequences, options.length or length)
    weights = initial_weights(config)
    tokens = torch.randint(config["vocab_size"], (batch[0] * batch[1] + 1,))
    print(f"{options.model}, {batch[0]} sequences of {batch[1]} tokens; {training.describe(device)}, bf16 by "
          "autocast", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source, data, plan = (os.path.join(folder, name) for name in ("source", "tokens.u16", "plan.json"))
        training.write_hugging_face(source, config, weights)
        training.write_tokens(data, tokens)
        try:
            training.make_plan(options.meshplan, os.path.join(source, "config.json"), plan, batch, optimizer,
                               "bf16", [])
            ours = training.train_with_meshplan(options.meshplan, plan, source, data, options.steps,
                                                "--device", device.type)
        except training.Failure as error:
            sys.exit(f"meshplan: {error}")
    weights = {n: w.to(device).requires_grad_(True) for n, w in weights.items()}
    ids, targets = (part.view(batch).to(device) for part in (tokens[:-1], tokens[1:]))
    theirs = training.train(models.gpt2, config, weights, ids, targets, optimizer, options.steps,
                            autocast=torch.bfloat16)
    losses, norms = compare(ours, theirs)
    agree = losses <= BOUND and norms <= BOUND
    print(f"largest difference of a loss {losses:.1e}, of a gradient norm {norms:.1e}; bound {BOUND:g}: "
          f"{'agree' if agree else 'DIFFER'}")
    sys.exit(0 if agree else 1)


main()

"""What the comparisons of this folder share: the same training by PyTorch and by `meshplan run`."""
import contextlib
import json
import math
import os
import subprocess
import sys

import torch

import safetensors_io

SKIPPED = 77  # exit code: nothing was compared


class Failure(Exception):
    """A command that failed, or results that cannot be compared."""


def choose_device(name):
    """torch's device; ends the program where PyTorch has no such one. fp32 stays fp32 on a GPU."""
    if name == "cuda":
        if not torch.cuda.is_available():
            print(f"skipped: PyTorch {torch.__version__} sees no GPU (torch.cuda.is_available() is False)")
            sys.exit(SKIPPED)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def describe(device):
    where = torch.cuda.get_device_name() if device.type == "cuda" else "a processor"
    return f"PyTorch {torch.__version__} on {where}"


def learning_rate(optimizer, step):
    """Linear warm-up, then a cosine to a part of the peak, or constant."""
    peak, warmup = optimizer["learning_rate"], optimizer["warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    if optimizer["schedule"] == "constant":
        return peak
    low = peak * optimizer["minimum_ratio"]
    progress = (step - warmup) / (optimizer["decay_steps"] - warmup)
    return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * progress))


def train(forward, config, weights, ids, targets, optimizer, steps, autocast=None, more_losses=()):
    """Losses, and gradient norms before clipping, of steps on the same batch; `weights` (leaf tensors by
    name) are trained in place.
    @param autocast     a dtype that torch.autocast computes in, or None
    @param more_losses  what is added to the cross entropy of `forward`, each of (config, weights, ids,
                        targets); they are not in the losses that are returned
    """
    decayed = [n for n, w in weights.items() if w.dim() > 1 and not n.endswith("bias")]
    matrices = [weights[n] for n in decayed]
    vectors = [w for n, w in weights.items() if n not in decayed]
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": optimizer["weight_decay"]},
                               {"params": vectors, "weight_decay": 0.0}],
                              betas=(optimizer["beta1"], optimizer["beta2"]), eps=optimizer["epsilon"])
    losses, norms = [], []
    for step in range(steps):
        for group in adamw.param_groups:
            group["lr"] = learning_rate(optimizer, step)
        adamw.zero_grad()
        with torch.autocast(ids.device.type, dtype=autocast) if autocast else contextlib.nullcontext():
            logits = forward(config, weights, ids)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
            whole = loss + sum(more(config, weights, ids, targets) for more in more_losses)
        whole.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(matrices + vectors, optimizer["clip_norm"]).item())
        adamw.step()
        losses.append(loss.item())
    return losses, norms


def run(*command):
    """What a command prints. @raises Failure unless it ends with 0"""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_hugging_face(folder, config, weights):
    """A folder as `meshplan run --init-from` reads it."""
    os.makedirs(folder)
    safetensors_io.save_file({n: w.detach().cpu().numpy() for n, w in weights.items()},
                             os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)


def write_tokens(path, tokens):
    """A token file, of 16-bit numbers as its name ends in .u16."""
    tokens.cpu().numpy().astype("<u2").tofile(path)


def make_plan(meshplan, model, plan_file, batch, optimizer, precision, flags, sequences_at_once=1):
    """@param batch  (sequences, tokens) of a step"""
    sequences, tokens = batch
    run(meshplan, "simulate", "--model", model, "--cluster", "cpu-host", "--global-batch", str(sequences),
        "--micro-batch", str(sequences_at_once), "--seq-len", str(tokens), "--precision", precision,
        "--out", plan_file, *flags)
    with open(plan_file) as file:
        plan = json.load(file)
    plan["workload"]["optimizer"].update(optimizer)
    plan["expert_imbalance"] = 8  # a random router may send any rank most of the rows
    with open(plan_file, "w") as file:
        json.dump(plan, file)


def train_with_meshplan(meshplan, plan_file, source, data, steps, *flags):
    """`run --json`, from the weights in `source` on the tokens in `data`."""
    report = json.loads(run(meshplan, "run", plan_file, "--steps", str(steps), "--data", data, "--init-from",
                            source, "--json", "--any-placement", *flags))
    for key in ("losses", "gradient_norms"):
        if len(report[key]) != steps or not all(n is not None and math.isfinite(n) for n in report[key]):
            raise Failure(f"{key} of {steps} steps: {report[key]}")
    return report

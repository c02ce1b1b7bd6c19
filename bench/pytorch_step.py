#!/usr/bin/env python3
"""Training throughput of GPT-2 and Llama 3.2 1B with PyTorch, for bench/cpu_training.sh (CPU) and
scripts/gpu_check.sh (GPU).

The same step as `meshplan run`: forward, mean cross entropy, backward, global norm clipping, AdamW
(loops over lists of tensors), on random tokens. The weights start as meshplan's (GPT-2's: normal,
deviation 0.02, projections of residual branches divided by sqrt(2 layers), biases 0), for the start
decides what is timed: PyTorch's own embeddings of deviation 1 give a first loss of 530, so that the
softmax saturates and nearly all gradients of the logits underflow. Denormal numbers, which some
processors compute slowly, are counted by --describe.

Prints tokens/s of the median step, of several --case a row each; with --describe what computes instead.
"""
import argparse
import functools
import math
import os
import re
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_up = nn.Linear(width, 4 * width)
        self.mlp_down = nn.Linear(4 * width, width)
        self.activation = nn.GELU(approximate="tanh")

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in (q, k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.attention_out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp_down(self.activation(self.mlp_up(self.mlp_norm(x))))


class LanguageModel(nn.Module):
    """Blocks in `hidden`, then a norm and the embedding once more."""

    def end(self, x, targets):
        """@returns the mean cross entropy, and the logits"""
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets), logits


class Gpt2(LanguageModel):
    def __init__(self, layers=12, width=768, heads=12, vocabulary=50257, positions=1024):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                ends_branch = "attention_out" in name or "mlp_down" in name
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if ends_branch else 1))

    def hidden(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return x


class LlamaBlock(nn.Module):
    """Grouped-query attention with rotary positions, and SwiGLU."""

    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.mlp_up = nn.Linear(width, 2 * ffn, bias=False)  # gate and up
        self.mlp_down = nn.Linear(ffn, width, bias=False)

    def attention(self, x, cos, sin):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, -1, self.size).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = (rotated(t, cos, sin) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.attention_out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        gate, up = self.mlp_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.mlp_down(F.silu(gate) * up)


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class Llama(LanguageModel):
    """Llama 3.2 1B; its rope frequencies are not rescaled for long contexts, which costs no time."""

    def __init__(self, layers=16, width=2048, heads=32, kv_heads=8, ffn=8192, vocabulary=128256, theta=5e5):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        size = width // heads
        self.register_buffer("frequencies", theta ** (-torch.arange(0, size, 2) / size))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def hidden(self, ids):
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device), self.frequencies).repeat(1, 2)
        x, cos, sin = self.tokens(ids), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return x


# What is trained, and the ids that it knows.
MODELS = {
    "gpt2-124m": (Gpt2, 50257),
    "gpt2-xl": (functools.partial(Gpt2, layers=48, width=1600, heads=25), 50257),
    "llama3.2-1b": (Llama, 128256),
    "tiny-gpt2": (functools.partial(Gpt2, layers=4, width=256, heads=8), 256),
}


def blas_libraries():
    """Files of the libraries in this process that could multiply fp32 matrices."""
    with open("/proc/self/maps") as maps:
        files = {os.path.realpath(line.split()[-1]) for line in maps if "/" in line}
    return sorted(f for f in files if re.search(r"blas|mkl_(core|rt)|blis", os.path.basename(f)))


def require_fast_blas():
    """PyTorch gives fp32 products to whatever BLAS is installed; the reference one takes ten times as long."""
    (torch.ones(2, 2) @ torch.ones(2, 2)).sum()
    found = blas_libraries()
    # On Debian PyTorch calls libblas.so.3, which is the library that the alternatives name; LAPACK may bring another.
    called = [f for f in found if os.path.basename(f).startswith("libblas.")] or found
    if not all(re.search("openblas|mkl|blis|atlas", f) for f in called) or not called:
        sys.exit(f"PyTorch multiplies with {', '.join(called) or 'no BLAS'}, which no comparison should: "
                 "apt-get install libopenblas0-openmp")
    return found


def denormal_share(tensors):
    """Part of the elements that are smaller than 2^-126 and not 0."""
    tiny = torch.finfo(torch.float32).tiny
    count = sum(int(((t != 0) & (t.abs() < tiny)).sum()) for t in tensors)
    return count / sum(t.numel() for t in tensors)


class Case:
    """What is trained: a model, the length of its sequences, sequences a step and in a micro-batch."""

    def __init__(self, model, length, batch, micro_batch):
        self.model, self.length, self.batch, self.micro_batch = model, length, batch, micro_batch
        if batch % micro_batch:
            raise argparse.ArgumentTypeError(f"{batch} sequences are no multiple of micro-batches of {micro_batch}")

    @classmethod
    def parse(cls, text):
        name, *numbers = text.split(",")
        if name not in MODELS or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
            raise argparse.ArgumentTypeError(
                f"'{text}' is not MODEL,LENGTH,SEQUENCES,MICRO_BATCH; models: {', '.join(MODELS)}")
        return cls(name, *map(int, numbers))


class Training:
    """One model with its optimizer, on the device."""

    def __init__(self, case, options):
        self.case, self.options = case, options
        self.on_gpu = options.device == "cuda"
        torch.manual_seed(1)
        make_model, self.vocabulary = MODELS[case.model]
        # A GPU's products are fast with rows of 128 only, which is how meshplan pads its vocabulary, too.
        rows = -(-self.vocabulary // 128) * 128 if self.on_gpu else self.vocabulary
        self.model = make_model(vocabulary=rows).to(options.device)
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), **({"fused": True} if self.on_gpu else {}))
        self.forward = torch.compile(self.loss_of) if options.compile else self.loss_of
        if options.blocks:  # one compilation for all blocks, and one for what is around them
            for block in self.model.blocks:
                block.compile()
            self.model.end = torch.compile(self.model.end)
        self.denormal = None

    def loss_of(self, tokens):
        x = self.model.hidden(tokens[:, :-1])
        return self.model.end(x, tokens[:, 1:].reshape(-1))

    def step(self, describe=False):
        """@returns seconds, and the loss of the last micro-batch"""
        case, options = self.case, self.options
        synchronize = torch.cuda.synchronize if self.on_gpu else lambda: None
        tokens = torch.randint(0, self.vocabulary, (case.batch, case.length + 1)).to(options.device)
        synchronize()
        begin = time.perf_counter()
        for part in tokens.split(case.micro_batch):
            with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.bf16):
                loss, logits = self.forward(part)
            if describe:
                logits.retain_grad()
            (loss * (case.micro_batch / case.batch)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if describe:
            self.denormal = denormal_share([logits.grad.float()] + [p.grad for p in self.model.parameters()])
        self.optimizer.zero_grad(set_to_none=True)
        synchronize()
        return time.perf_counter() - begin, loss

    def tokens_per_s(self):
        times = [self.step()[0] for _ in range(self.options.steps)]
        return self.case.batch * self.case.length / statistics.median(times[1:])


def describe(training, libraries):
    for step in range(training.options.steps):
        _, loss = training.step(describe=step + 1 == training.options.steps)
    dnn = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    print(f"PyTorch {torch.__version__}, {', '.join(libraries)}, "
          f"oneDNN {dnn.group(1) if dnn else 'none'}, {torch.get_num_threads()} threads; "
          f"loss {loss.item():.2f} after {training.options.steps} steps, "
          f"{100 * training.denormal:.3g} % of the gradients denormal")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--eager", action="store_true", help="nothing is compiled (default)")
    how.add_argument("--compile", action="store_true", help="forward and loss by torch.compile")
    how.add_argument("--blocks", action="store_true",
                     help="each block, and the loss, by torch.compile: compiled in a fraction of the time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, help="sequences; default: the whole batch")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--case", type=Case.parse, action="append", dest="cases", metavar="MODEL,LENGTH,SEQUENCES,MICRO_BATCH",
                        help="instead of --model and the sizes, several in turn: prints model, program, tokens/s of each")
    options = parser.parse_args()
    if not options.cases:
        try:
            options.cases = [Case(options.model, options.length, options.batch, options.micro_batch or options.batch)]
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))
        options.rows = False
    else:
        options.rows = True
    return options


def main():
    options = parse()
    libraries = [torch.cuda.get_device_name()] if options.device == "cuda" else require_fast_blas()
    torch.set_num_threads(options.threads)
    if options.describe:
        describe(Training(options.cases[0], options), libraries)
        return 0
    program = "PyTorch, " + ("torch.compile" if options.compile else
                             "torch.compile of blocks" if options.blocks else "eager")
    failed = 0
    for case in options.cases:
        try:
            rate = Training(case, options).tokens_per_s()
        except RuntimeError as error:  # out of memory, or not compiled: the others are worth having
            if not options.rows:
                raise
            print(f"{case.model}: {program}: {error}", file=sys.stderr)
            failed = 1
            continue
        print(f"{case.model}\t{program}\t{rate:.0f}" if options.rows else f"{rate:.2f}", flush=True)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Asks Megatron-LM itself whether it takes the flags of launch scripts.

  scripts/megatron_accepts.py MEGATRON_LM run.sh...

MEGATRON_LM is a checkout of https://github.com/NVIDIA/Megatron-LM. Each script runs with a stand-in for torchrun that
takes down what it would start (MOCK_DATA=1, so that no data is asked for). Megatron's own parse_args(), validate_args()
and TransformerConfig then judge the flags, each script in a process of its own, for as many ranks as the script starts.
Without PyTorch or a GPU, stand-ins for the libraries that Megatron imports say that there is a Hopper GPU: nothing is
built and nothing trains. Needs Python 3.11 with `packaging`. Exit code 1 if a script is refused.
"""

import importlib.abc
import importlib.machinery
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import typing

# What Megatron-LM imports and this check does not need.
STAND_INS = {"apex", "einops", "modelopt", "nvidia_resiliency_ext", "numpy", "omegaconf", "onnxscript", "pynvml", "regex",
             "requests", "safetensors", "scipy", "sentencepiece", "tensorstore", "tiktoken", "torch", "tqdm",
             "transformer_engine", "transformers", "triton", "wandb", "zarr"}

TORCHRUN = """#!/bin/bash
while [ "${1##*.}" != py ]; do
  case $1 in
    --nproc_per_node) each=$2 ;;
    --nnodes) nodes=$2 ;;
  esac
  shift
done
shift
printf '%s\\0' "$((each * nodes))" "$@"
"""


class Thing:
    """Stands for whatever a missing library offers: it may be called, indexed, compared and counted with."""

    def __init__(self, name="thing"):
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(f"{self._name}.{name}")

    def __call__(self, *arguments, **named):
        decorates = len(arguments) == 1 and not named and isinstance(arguments[0], (types.FunctionType, type))
        return arguments[0] if decorates else Thing(self._name + "()")

    def __getitem__(self, key):
        return Thing()

    def __mro_entries__(self, bases):
        return (object,)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __contains__(self, item):
        return False

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return isinstance(other, Thing) and other._name == self._name

    def __enter__(self):
        return self

    def __exit__(self, *what):
        return False

    def _one(self, *others):
        return 1

    def _thing(self, other):
        return Thing()

    def _yes(self, other):
        return True

    def _no(self, other):
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _one
    __int__ = __index__ = __neg__ = _one
    __float__ = lambda self: 1.0
    __bool__ = lambda self: True
    __or__ = __ror__ = _thing
    __ge__ = __gt__ = _yes
    __le__ = __lt__ = _no


class StandIn(types.ModuleType):
    __version__ = "2.9.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in STAND_INS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def stand_in_for_torch():
    sys.meta_path.insert(0, Finder())
    if not hasattr(typing, "override"):  # Python 3.12
        typing.override = lambda function: function
    import torch
    import torch.nn

    class DType:
        pass

    torch.dtype = DType
    for name in ("float32", "bfloat16", "float16", "uint8"):
        setattr(torch, name, DType())
    torch.float, torch.half = torch.float32, torch.float16
    torch.Tensor = type("Tensor", (), {})
    torch.nn.Module = type("Module", (), {})
    torch.cuda = StandIn("torch.cuda")
    torch.cuda.get_device_capability = lambda *which: (9, 0)
    torch.cuda.get_device_properties = lambda *which: types.SimpleNamespace(major=9, minor=0)
    torch.distributed.is_initialized = lambda: False
    torch.is_grad_enabled = lambda: True


def started_by(script, folder):
    """Ranks and flags of what the script starts."""
    run = subprocess.run(["bash", script], env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "MOCK_DATA": "1"},
                         capture_output=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{script}: {run.stderr.decode()}")
    words = run.stdout.decode().split("\0")[:-1]
    return int(words[0]), words[1:]


def judge(script, ranks, flags):
    """In a child: 'ok', or what Megatron says."""
    from megatron.training import arguments
    from megatron.training.argument_utils import core_transformer_config_from_args

    os.environ.update(WORLD_SIZE=str(ranks), RANK="0", LOCAL_RANK="0")
    text = pathlib.Path(script).read_text(encoding="utf-8")
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1" in text:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["pretrain_gpt.py", *flags]
    errors = sys.stderr = io.StringIO()
    sys.stdout = io.StringIO()
    try:
        args = arguments.parse_args()
        arguments.validate_args(args, {})
        core_transformer_config_from_args(args)
    except SystemExit:  # argparse
        return errors.getvalue().strip().splitlines()[-1]
    except Exception as error:  # whatever Megatron raises is its answer
        return f"{type(error).__name__}: {error}"
    return "ok"


def in_child(script, ranks, flags):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as answer:
            answer.write(judge(script, ranks, flags))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text or "Megatron-LM ended without an answer"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    megatron, scripts = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        torchrun = pathlib.Path(folder) / "torchrun"
        torchrun.write_text(TORCHRUN, encoding="utf-8")
        torchrun.chmod(0o755)
        started = [(script, *started_by(script, folder)) for script in scripts]
    os.environ.update(WORLD_SIZE="8", RANK="0")
    sys.path.insert(0, megatron)
    try:
        import torch  # noqa: F401
    except ImportError:
        stand_in_for_torch()
    import warnings
    warnings.simplefilter("ignore")
    import megatron.training.arguments  # noqa: F401  once, for all children
    refused = 0
    for script, ranks, flags in started:
        answer = in_child(script, ranks, flags)
        refused += answer != "ok"
        print(f"{script}: {ranks} ranks, {len(flags)} words: {answer}")
    print(f"{len(started)} scripts, {refused} refused")
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main()

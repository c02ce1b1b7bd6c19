"""Plans, predicts and checks parallel training of transformers, as the command ``meshplan`` does.

    >>> import meshplan
    >>> found = meshplan.plan(model="llama3-8b", cluster="dgx-h100", gpus=64, global_batch=512)
    >>> best = found["ranked"][0]
    >>> best["description"], best["step_time_s"]
    >>> meshplan.simulate(best["plan"], set={"micro_batch_size": 2})["step_time_s"]

Dicts are the JSON of the command's ``--json``, with units in the names: ``_s`` seconds, ``_bytes`` bytes. Wrong input
raises `ConfigError` with the command's message. Other Python threads run during a search, and Ctrl-C ends it.
"""

import json as _json

from . import _functions, _meshplan
from ._errors import ConfigError, Error, InfeasibleError, InvariantError, IoError
from ._meshplan import __version__

__all__ = ["ConfigError", "Error", "InfeasibleError", "InvariantError", "IoError", "__version__", "check", "cluster",
           "model", "plan", "presets", "schema", "simulate", "validate"]

plan = _functions.function_of(
    "plan", "Returns the ranked plans, the best first, what other choices would have cost, and what was rejected and "
    "why; if nothing fits (\"feasible\" is False), the nearest miss and what would fit. `schema(\"result\")` "
    "describes it.")

simulate = _functions.function_of(
    "simulate", "Returns the predicted step time in seconds and its 80 % interval, where it goes on each stage, and "
    "each stage's memory in bytes. The plan is a file's name or its dict, or is described with keywords.")

check = _functions.function_of(
    "check", "Returns whether a training stack starts the plan (\"valid\") and which rules refuse it, each stage's memory "
    "in bytes and whether it fits, and which single changes would help. A plan that breaks rules is a result, no error.")

validate = _functions.function_of(
    "validate", "Returns the errors of the predictions, by suite of the table.")


def model(name):
    """The specification of a model, as a dict that `plan` takes: a preset's name, a file's, or a Hugging Face config."""
    return _json.loads(_meshplan.model(_functions.text_of(name)))


def cluster(name):
    """The description of a cluster, as a dict that `plan` takes: a preset's name or a file's. Units stand in the names."""
    return _json.loads(_meshplan.cluster(_functions.text_of(name)))


def presets():
    """The names that `model`, `cluster` and `software` may have, by these words."""
    return {"model": _meshplan.model_names(), "cluster": _meshplan.cluster_names(),
            "software": _meshplan.software_names()}


def schema(of):
    """The JSON Schema of a "plan", "model" or "cluster" file, or of the "result" of `plan`."""
    return _json.loads(_meshplan.schema(of))

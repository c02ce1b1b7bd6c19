"""Makes functions of the command's requests: a keyword for each option, as the command declares it.

A keyword is the option's name with underscores: ``--global-batch 512`` is ``global_batch=512``, ``--no-sp`` is
``sp=False``. None leaves an option out. Where the command takes a file's name, a dict stands for the file's JSON.
"""

import difflib
import inspect
import json
import keyword
import os
import textwrap
import typing

from . import _meshplan

FileName = typing.Union[str, os.PathLike]
JsonObject = typing.Mapping[str, typing.Any]


def keyword_of(option):
    name = option["flag"].lstrip("-").replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def text_of(value):
    """One value as the command line spells it."""
    if isinstance(value, typing.Mapping):
        return json.dumps(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value)


def setting_of(path, value):
    """``{"parallel.tp": 4}`` is ``--set parallel.tp=4``."""
    return f"{path}={json.dumps(value)}"


def words_of(option, value):
    """The words of the command line that say an option's value."""
    kind, flag = option["kind"], option["flag"]
    if value is None:
        return []
    if option["positional"]:
        return [text_of(value)]
    if kind == "flag":
        return [flag] if value else []
    if kind == "on_off":
        return [flag if value else "--no-" + flag.lstrip("-")]
    if kind == "integers":
        return [flag + "=" + ",".join(str(item) for item in value)]
    if kind == "texts":
        if isinstance(value, typing.Mapping):
            value = [setting_of(path, item) for path, item in value.items()]
        return [f"{flag}={item}" for item in value]
    return [f"{flag}={text_of(value)}"]


def type_of(option):
    """What a keyword accepts; every one also None, which leaves it out."""
    kind = option["kind"]
    if kind in ("flag", "on_off"):
        accepted = bool
    elif kind == "integer":
        accepted = int
    elif kind == "number":
        accepted = float
    elif kind == "integers":
        accepted = typing.Sequence[int]
    elif kind == "texts":
        accepted = typing.Union[typing.Sequence[str], JsonObject]
    elif option["choices"]:
        accepted = typing.Literal[tuple(option["choices"])]
    elif option["takes_json"]:
        accepted = typing.Union[FileName, JsonObject]
    elif option["takes_file"]:
        accepted = FileName
    else:
        accepted = str
    return typing.Optional[accepted]


def parameter_of(option):
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option["positional"] else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(keyword_of(option), kind, default=None, annotation=type_of(option))


def docstring_of(description, returns):
    lines = [description["summary"] + ".", "", *textwrap.wrap(returns, 100)]
    group = None
    for option in description["options"]:
        if option["group"] != group:
            group = option["group"]
            lines += ["", f"{group}:"]
        default = f" [{option['default']}]" if option["default"] else ""
        lines += textwrap.wrap(f"{keyword_of(option)}: {option['help']}{default}", 100,
                               initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def refuse_unknown(name, given, known):
    for key in given:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, 1, 0)
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'; did you mean '{nearest[0]}'?")


def function_of(name, returns):
    """A function that asks what ``meshplan NAME --json`` asks, and returns what that prints as a dict."""
    description = _meshplan.describe(name)
    options = {keyword_of(option): option for option in description["options"]}
    signature = inspect.Signature([parameter_of(option) for option in description["options"]],
                                  return_annotation=typing.Dict[str, typing.Any])

    def function(*args, **kwargs):
        refuse_unknown(name, kwargs, options)
        words = []
        for key, value in signature.bind(*args, **kwargs).arguments.items():
            words += words_of(options[key], value)
        return json.loads(_meshplan.ask(name, words))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "meshplan"
    function.__signature__ = signature
    function.__doc__ = docstring_of(description, returns)
    return function

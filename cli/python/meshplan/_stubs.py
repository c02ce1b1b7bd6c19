"""Prints meshplan/__init__.pyi: the types of what _functions.py makes when it is imported."""

import inspect
import re

import meshplan

HEAD = '''"""Types of the package; `python3 -m meshplan._stubs` writes this file."""

from os import PathLike
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union

__version__: str

class Error(Exception): ...
class ConfigError(Error, ValueError): ...
class InfeasibleError(Error): ...
class IoError(Error, OSError): ...
class InvariantError(Error, RuntimeError): ...

def model(name: Union[str, PathLike[str], Mapping[str, Any]]) -> Dict[str, Any]: ...
def cluster(name: Union[str, PathLike[str], Mapping[str, Any]]) -> Dict[str, Any]: ...
def presets() -> Dict[str, List[str]]: ...
def schema(of: Literal["plan", "result", "model", "cluster"]) -> Dict[str, Any]: ...
'''


def spelled(annotation):
    text = inspect.formatannotation(annotation).replace("typing.", "")
    return re.sub(r"\bos\.PathLike\b", "PathLike[str]", text).replace("NoneType", "None")


def stub_of(function):
    signature = inspect.signature(function)
    lines, keywords = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            lines.append("    *,")
            keywords = True
        lines.append(f"    {parameter.name}: {spelled(parameter.annotation)} = ...,")
    body = "\n".join(lines)
    return f"\ndef {function.__name__}(\n{body}\n) -> {spelled(signature.return_annotation)}: ...\n"


if __name__ == "__main__":
    print(HEAD + "".join(stub_of(function) for function in (meshplan.plan, meshplan.simulate, meshplan.check,
                                                            meshplan.validate)), end="")

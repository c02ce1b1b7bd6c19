"""A validator of the part of JSON Schema (draft 2020-12) that meshplan's schemas use.

A keyword that it does not know is an error: nothing of a schema is left unchecked.
"""

ANNOTATIONS = {"$schema", "title", "description", "default", "$defs"}
TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}


def faults(value, schema, root=None, path=""):
    """Where `value` breaks `schema`, a line each; empty if it does not."""
    root = schema if root is None else root
    found = []
    for keyword, rule in schema.items():
        if keyword in ANNOTATIONS:
            continue
        if keyword == "$ref":
            part = root
            for key in rule.removeprefix("#/").split("/"):
                part = part[key]
            found += faults(value, part, root, path)
        elif keyword == "type":
            if not TYPES[rule](value):
                return [f"{path}: {value!r} is no {rule}"]
        elif keyword == "properties":
            for key in rule.keys() & value.keys():
                found += faults(value[key], rule[key], root, f"{path}.{key}")
        elif keyword == "required":
            found += [f"{path}: lacks {key}" for key in rule if key not in value]
        elif keyword == "additionalProperties":
            for key in value.keys() - schema.get("properties", {}).keys():
                found += [f"{path}: unknown key {key}"] if rule is False else faults(value[key], rule, root, f"{path}.{key}")
        elif keyword == "items":
            for i, item in enumerate(value):
                found += faults(item, rule, root, f"{path}[{i}]")
        elif keyword == "enum":
            found += [] if value in rule else [f"{path}: {value!r} is none of {rule}"]
        elif keyword == "const":
            found += [] if value == rule else [f"{path}: {value!r} is not {rule!r}"]
        elif keyword == "minimum":
            found += [] if value >= rule else [f"{path}: {value!r} is below {rule}"]
        elif keyword == "maximum":
            found += [] if value <= rule else [f"{path}: {value!r} is above {rule}"]
        elif keyword == "maxLength":
            if isinstance(value, str) and len(value) > rule:
                found.append(f"{path}: {len(value)} characters, more than {rule}")
        elif keyword in ("anyOf", "oneOf"):
            branches = [faults(value, branch, root, path) for branch in rule]
            fitting = sum(not branch for branch in branches)
            if fitting == 0 or (keyword == "oneOf" and fitting > 1):
                found += [f"{path}: {fitting} of {len(rule)} forms fit"] + min(branches, key=len)
        else:
            raise ValueError(f"{path}: keyword {keyword} is not known")
    return found

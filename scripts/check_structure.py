#!/usr/bin/env python3
"""Prints who includes whom among the layers and among their rooms, and fails where a wall is missing.

  scripts/check_structure.py [ROOT]      default: this repository

A room is a folder one level below LAYER/src or LAYER/include/LAYER; the two are one room where they share a name, and
what lies directly in them is the room `.`, the layer's door. A part that is a target of its own (kernels/cuda) is a
room that may have rooms. Exit code 1 if

  - a layer includes one that it may not (ARROWS),
  - rooms of a layer include each other in a circle,
  - a public header is included by no other target: it belongs into src/,
  - a folder holds more than 30 files side by side,
  - a file of a layer uses what a newer standard library no longer brings along by itself (BROUGHT_ALONG), and neither it
    nor a header of ours that it includes names the header. Sources compile in batches, which hide that.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

# What a layer may include, as docs/design.md draws it.
ARROWS = {
    "core": set(),
    "models": {"core"},
    "program": {"core", "models"},
    "sim": {"core", "models", "program"},
    "planner": {"core", "models", "program", "sim"},
    "kernels": {"core"},
    "runtime": {"core", "models", "program", "kernels"},
    "reports": {"core", "models", "program", "sim", "planner"},
    "cli": {"core", "models", "program", "sim", "planner", "kernels", "runtime", "reports"},
}
MOST_FILES = 30
# Folders that may hold more, each with the reason.
CROWDED = {}

# Headers that others of GCC 12's library include, and those of GCC 13 and 14 do not.
BROUGHT_ALONG = {
    "cstdint": re.compile(r"std::u?int\d+_t\b"),
    "algorithm": re.compile(r"std::(ranges::)?(\w*sort|(any|all|none)_of|(find|count|copy|remove)(_if)?|min|max|clamp|fill|"
                            r"replace|reverse|transform|equal|(lower|upper)_bound|m(in|ax)_element|unique|search)\("),
    "string_view": re.compile(r"std::string_view\b"),
}

SOURCE = (".cpp", ".hpp", ".cu", ".cuh", ".h", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
STANDARD = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)

Include = collections.namedtuple("Include", "file line source target")  # paths below the root


def list_files(root):
    """All files of the repository, as paths below its root: without what is built or ignored."""
    if (root / ".git").exists() and shutil.which("git"):
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        found = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
        return sorted(name for name in found if name and (root / name).exists())
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in (".git", "build"))
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


class Tree:
    """The files of a repository and the targets that they are of: LAYER, or LAYER/PART where a part has a src of its own."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = list_files(self.root)
        self.known = set(self.files)
        self.targets = sorted({match[1] for match in map(re.compile(r"^(.*?)/(?:src|include)/").match, self.files)
                               if match and match[1].split("/")[0] in ARROWS}, key=len, reverse=True)
        self.includes = [include for name in self.files if name.endswith(SOURCE) for include in self.includes_of(name)]

    def target_of(self, name):
        return next((target for target in self.targets if name.startswith((target + "/src/", target + "/include/"))), None)

    def room_of(self, name):
        """None outside the layers."""
        target = self.target_of(name)
        if target is None:
            return None
        layer, *part = target.split("/")
        inner = name[len(target) + 1:].split("/")
        inner = inner[1:-1] if inner[0] == "src" else inner[2:-1]
        if part and inner[:1] == part:  # LAYER/PART/include/LAYER/PART: what the part's rooms build on
            inner = ["include"]
        return layer, "/".join(part + inner[:1]) or "."

    def find(self, name, text):
        """The file that a line of `name` includes, as the compiler looks for it; None if it is none of ours."""
        target = self.target_of(name)
        own = [f"{target}/src", f"{target}/include"] if target else []
        for folder in [os.path.dirname(name)] + own + [f"{other}/include" for other in self.targets]:
            path = os.path.normpath(os.path.join(folder, text))
            if path in self.known:
                return path
        return None

    def includes_of(self, name):
        with open(self.root / name, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                found = match and self.find(name, match[1])
                if found:
                    yield Include(name, number, line.strip(), found)


def edges_between(tree, place_of):
    """{(from, to): an include that makes the edge} of places that differ."""
    edges = {}
    for include in tree.includes:
        source, target = place_of(include.file), place_of(include.target)
        if source and target and source != target:
            edges.setdefault((source, target), include)
    return edges


def shortest_cycle(edges):
    """The nodes of one, in order; empty if there is none."""
    following = collections.defaultdict(list)
    for source, target in sorted(edges):
        following[source].append(target)
    best = []
    for start in sorted(following):
        paths = collections.deque([[start]])
        seen = set()
        while paths:
            path = paths.popleft()
            if best and len(path) >= len(best):
                break
            for target in following[path[-1]]:
                if target == start:
                    best = path
                    paths.clear()
                    break
                if target not in seen:
                    seen.add(target)
                    paths.append(path + [target])
    return best


def line_of(include):
    return f"    {include.file}:{include.line}: {include.source}"


def layer_errors(tree):
    for (source, target), include in sorted(edges_between(tree, lambda name: (tree.room_of(name) or [None])[0]).items()):
        if target not in ARROWS[source]:
            yield f"{source} must not include {target}:\n{line_of(include)}"


def room_edges(tree, layer):
    def place_of(name):
        room = tree.room_of(name)
        return room[1] if room and room[0] == layer else None
    return edges_between(tree, place_of)


def room_errors(tree):
    for layer in ARROWS:
        edges = room_edges(tree, layer)
        while cycle := shortest_cycle(edges):
            steps = list(zip(cycle, cycle[1:] + cycle[:1]))
            yield (f"rooms of {layer} include each other in a circle: {' -> '.join(cycle + cycle[:1])}\n" +
                   "\n".join(line_of(edges[step]) for step in steps))
            for step in steps:  # what else there is shares none of these
                del edges[step]


def header_errors(tree):
    """A header is public for others: another target, a bench, or another header that is."""
    public = {name for name in tree.files if tree.target_of(name) and name.startswith(tree.target_of(name) + "/include/")}
    needed = {include.target for include in tree.includes if include.target in public and
              not include.file.startswith("tests/") and tree.target_of(include.file) != tree.target_of(include.target)}
    waiting = list(needed)
    while waiting:
        name = waiting.pop()
        for include in tree.includes:
            if include.file == name and include.target in public - needed:
                needed.add(include.target)
                waiting.append(include.target)
    for name in sorted(public - needed):
        yield f"{name} is included by no other layer, bench or cli: it belongs into src/"


def crowd_errors(tree):
    counts = collections.Counter(os.path.dirname(name) or "." for name in tree.files)
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES and folder not in CROWDED:
            yield f"{folder} holds {count} files side by side; at most {MOST_FILES}"
    for folder in sorted(CROWDED):
        if counts[folder] <= MOST_FILES:
            yield f"{folder} holds {counts[folder]} files: it needs no exception (CROWDED)"


def standard_header_errors(tree):
    names = [name for name in tree.files if tree.target_of(name) and name.endswith(SOURCE)]
    texts = {name: (tree.root / name).read_text(encoding="utf-8", errors="replace") for name in names}
    named = {name: set(STANDARD.findall(text)) for name, text in texts.items()}
    included = collections.defaultdict(list)
    for include in tree.includes:
        included[include.file].append(include.target)

    def reached(name):
        waiting, seen = [name], {name}
        while waiting:
            new = set(included[waiting.pop()]) - seen
            seen |= new
            waiting.extend(new)
        return set().union(*(named.get(file, set()) for file in seen))
    for name, text in texts.items():
        for header, use in BROUGHT_ALONG.items():
            if (match := use.search(text)) and header not in reached(name):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{name}:{line}: {match[0].rstrip('(')} needs #include <{header}>"


def print_graph(tree):
    between = edges_between(tree, lambda name: (tree.room_of(name) or [None])[0])
    for layer in ARROWS:
        targets = [other for other in ARROWS if (layer, other) in between]
        print(f"{layer} -> {' '.join(targets) or '-'}")
        rooms = sorted({room[1] for room in map(tree.room_of, tree.files) if room and room[0] == layer})
        if len(rooms) < 2:
            continue
        edges = room_edges(tree, layer)
        for room in rooms:
            print(f"    {room} -> {' '.join(other for other in rooms if (room, other) in edges) or '-'}")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    tree = Tree(root)
    print_graph(tree)
    errors = [*layer_errors(tree), *room_errors(tree), *header_errors(tree), *crowd_errors(tree),
              *standard_header_errors(tree)]
    for error in errors:
        print(f"check_structure: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

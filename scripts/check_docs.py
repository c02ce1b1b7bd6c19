#!/usr/bin/env python3
"""Checks README.md and docs/: tables, links, paths, beginnings of pages, and that the index is whole.

    scripts/check_docs.py           # a line a fault; exit code 1 if there is one
    scripts/check_docs.py --mend    # first turns the paths of files that moved into where they are
    scripts/check_docs.py --mend --since COMMIT    # also names that changed since then, as git sees it

A page refers to a file by a link, by its path in `backticks` (from the root, or the end of it as an
include line has it; {a,b} and * stand for several), or by its name alone. All three must exist.
"""
import argparse
import fnmatch
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

CODE = (".cpp", ".hpp", ".cu", ".cuh")
SOURCES = CODE + (".sh", ".py", ".json", ".txt", ".cmake")
NO_PAGES_NAMED = ("tests/fuzz/corpus/", "tests/scripts/check_docs_test.py")
# Folders of the root that hold what is built or lent, none of ours.
NOT_OURS = re.compile(r"^(\..*|build.*|shared|run)$")

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
SPAN = re.compile(r"`([^`\n]+)`")
DELIMITERS = re.compile(r"\s*\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
REFERENCE = re.compile(r"\bdocs/[\w/]+\.md(?:#[\w-]+)?")


class Tree:
    """The files of the repository, by path and by name."""

    def __init__(self, root, renamed=None):
        self.root = root
        self.renamed = renamed or {}  # by path and by name
        self.files = set()
        self.folders = set()
        for top in sorted(os.listdir(root)):
            if NOT_OURS.match(top):
                continue
            if (root / top).is_file():
                self.files.add(top)
                continue
            for folder, subfolders, names in os.walk(root / top):
                subfolders[:] = [name for name in subfolders if name != "__pycache__"]
                relative = os.path.relpath(folder, root)
                self.folders.add(relative)
                self.files.update(f"{relative}/{name}" for name in names)
        self.tops = {path.split("/")[0] for path in self.folders}
        self.by_name = {}
        for path in sorted(self.files):
            self.by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)
        self.tests = (root / "tests/CMakeLists.txt").read_text()

    def has(self, path):
        """Is there such a file or folder, by its whole path or the end of it?"""
        path = path.rstrip("/")
        if path in self.files or path in self.folders or path + ".cpp" in self.files:
            return True  # a bench may be named as its program is
        candidates = self.files | self.folders
        if "*" in path:
            return any(fnmatch.fnmatch("/" + known, "*/" + path) for known in candidates)
        return any(known.endswith("/" + path) for known in candidates)

    def moved(self, path):
        """Where the only file of this name is now, in the same layer if there are several."""
        if path in self.renamed:
            return self.renamed[path]
        if path.endswith(".md"):
            return None  # pages of one name are not one page
        name = path.rsplit("/", 1)[-1]
        found = self.by_name.get(name) or self.by_name.get(self.renamed.get(name), [])
        layer = path.split("/")[0] + "/"
        same = [candidate for candidate in found if candidate.startswith(layer)]
        return same[0] if len(same) == 1 else found[0] if len(found) == 1 else None


def alternatives(path):
    """a/{b,c}.cpp -> a/b.cpp, a/c.cpp"""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part]
             for part in re.split(r"(\{[^}]*\})", path)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def renames_since(commit, root):
    """Paths of today by those of then, and names by names where a name tells."""
    listed = subprocess.run(["git", "diff", "--find-renames", "--diff-filter=R", "--name-status", commit],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    paths = dict(line.split("\t")[1:] for line in listed.splitlines())
    names = {}
    for old, new in paths.items():
        names.setdefault(old.rsplit("/", 1)[-1], set()).add(new.rsplit("/", 1)[-1])
    return paths | {old: new.pop() for old, new in names.items() if len(new) == 1}


def looks_like_path(word, tree):
    if not re.fullmatch(r"[\w.{},*/-]+", word) or word.startswith(("..", "/", "-")):
        return False
    if "/" not in word:
        return word.endswith(CODE) and not word.startswith((".", "*"))
    return word.split("/")[0] in tree.tops or word.endswith(CODE)


def cells(line):
    """As GitHub counts them: in code, too, only an escaped bar is none."""
    return len(re.split(r"(?<!\\)\|", line.strip().strip("|")))


def slug(heading):
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Page:
    def __init__(self, path, tree):
        self.path = path
        self.name = path.relative_to(tree.root).as_posix()
        self.tree = tree
        self.lines = path.read_text().split("\n")
        self.faults = []
        self.links = set()  # paths from the root
        self.is_code = []
        fenced = False
        for line in self.lines:
            fence = line.startswith("```")
            self.is_code.append(fenced or fence or line.startswith("    "))
            fenced ^= fence

    def fault(self, index, text):
        self.faults.append(f"{self.name}:{index + 1}: {text}")

    def prose(self):
        return ((i, line) for i, line in enumerate(self.lines) if not self.is_code[i])

    def anchors(self):
        return {slug(line.lstrip("#").strip()) for _, line in self.prose() if line.startswith("#")}

    def check_beginning(self):
        first = [line for line in self.lines if line.strip()][:2]
        if len(first) < 2 or not first[0].startswith("# "):
            self.fault(0, "a page begins with its title")
        elif first[1].startswith(("#", "|", "- ", "* ", "    ", "![", "```")):
            self.fault(2, "a page begins with a paragraph that says what it is about")

    def check_tables(self):
        header = None
        for i, line in self.prose():
            following = self.lines[i + 1] if i + 1 < len(self.lines) else ""
            if not line.lstrip().startswith("|"):
                header = None
            elif header is None and DELIMITERS.fullmatch(following):
                header = cells(line)
            elif header is None:
                self.fault(i, "a row outside of a table: is there an empty line before it?")
            elif cells(line) != header:
                self.fault(i, f"a row of {cells(line)} cells under a header of {header}")

    def check_links(self, pages):
        for i, line in self.prose():
            for _, target, _ in LINK.findall(SPAN.sub("", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                linked = os.path.normpath((self.path.parent / path) if path else self.path)
                relative = os.path.relpath(linked, self.tree.root)
                self.links.add(relative)
                if not os.path.exists(linked):
                    self.fault(i, f"the link {target} leads nowhere{self.hint(relative)}")
                elif anchor and relative in pages and anchor not in pages[relative].anchors():
                    self.fault(i, f"{relative} has no heading for #{anchor}")

    def check_paths(self):
        for i, line in enumerate(self.lines):
            spans = [line] if self.is_code[i] else SPAN.findall(line)
            for word in itertools.chain.from_iterable(span.split() for span in spans):
                self.check_word(i, word.strip("();:,"), shown=self.is_code[i])

    def check_word(self, i, word, shown):
        if re.fullmatch(r"\w+_test", word) and not shown:
            if not any(self.tree.by_name.get(word + end) for end in (".cpp", ".sh", ".py")):
                self.fault(i, f"there is no test {word}")
            return
        if shown and not word.startswith(("scripts/", "bench/", "tests/")):
            return  # pictures and commands hold words of all kinds
        if not looks_like_path(word, self.tree):
            return
        for path in alternatives(word):
            if not self.tree.has(path) and path not in self.tree.tests:
                self.fault(i, f"there is no {path}{self.hint(path)}")

    def hint(self, path):
        moved = self.tree.moved(path)
        return f"; did it move to {moved}? (--mend)" if moved else ""

    def mend(self):
        def link(match):
            path, hash_sign, anchor = match[2].partition("#")
            linked = os.path.normpath(self.path.parent / path)
            moved = self.tree.moved(os.path.relpath(linked, self.tree.root))
            if not path or ":" in path or os.path.exists(linked) or not moved:
                return match[0]
            new = os.path.relpath(self.tree.root / moved, self.path.parent)
            old_name, new_name = path.rsplit("/", 1)[-1], moved.rsplit("/", 1)[-1]
            return match[1].replace(old_name, new_name) + new + hash_sign + anchor + match[3]

        def span(match):
            word = match[1]
            if not looks_like_path(word, self.tree):
                return match[0]
            if "/" not in word:  # a name stays right wherever its file goes
                gone = not self.tree.has(word)
                return f"`{self.tree.renamed.get(word, word)}`" if gone else match[0]
            paths = alternatives(word)
            moved = [self.tree.moved(path) for path in paths]
            if all(map(self.tree.has, paths)) or None in moved:
                return match[0]
            folders = {path.rsplit("/", 1)[0] for path in moved}
            name = word.rsplit("/", 1)[1] if len(paths) > 1 else moved[0].rsplit("/", 1)[1]
            if len(folders) > 1 or "{" in word and "{" not in name:
                return match[0]  # several files of which each went its way
            return f"`{folders.pop()}/{name}`"

        mended = [line if code else SPAN.sub(span, LINK.sub(link, line))
                  for line, code in zip(self.lines, self.is_code)]
        if mended != self.lines:
            self.lines = mended
            self.path.write_text("\n".join(mended))
            print(f"mended {self.name}")


def check_references(tree, pages):
    """What comments of the sources say about pages."""
    faults = []
    for path in sorted(tree.files):
        if not path.endswith(SOURCES) or path.startswith(NO_PAGES_NAMED):
            continue
        for i, line in enumerate((tree.root / path).read_text(errors="replace").split("\n")):
            for reference in REFERENCE.findall(line):
                page, _, anchor = reference.partition("#")
                if page not in tree.files:
                    faults.append(f"{path}:{i + 1}: there is no {page}")
                elif anchor and anchor not in pages[page].anchors():
                    faults.append(f"{path}:{i + 1}: {page} has no heading for #{anchor}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mend", action="store_true", help="follow files that moved")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--since", metavar="COMMIT", help="follow files that were renamed since, too")
    options = parser.parse_args()
    root = options.root.resolve()
    tree = Tree(root, renames_since(options.since, root) if options.since else None)
    paths = [tree.root / "README.md", *sorted((tree.root / "docs").rglob("*.md"))]
    pages = {page.name: page for page in (Page(path, tree) for path in paths)}
    faults = []
    for page in pages.values():
        if options.mend:
            page.mend()
        page.check_beginning()
        page.check_tables()
        page.check_links(pages)
        page.check_paths()
        faults += page.faults
    index = pages["docs/README.md"]
    faults += [f"{index.name}: does not link {name}" for name in pages
               if name.startswith("docs/") and name not in index.links | {index.name}]
    faults += check_references(tree, pages)
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

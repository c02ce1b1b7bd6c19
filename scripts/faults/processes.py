"""The machine's processes and the logs of runs, for scripts that break jobs and look at what happens."""

import json
from pathlib import Path

MODEL = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 256,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


class Processes:
    """The machine's, by parent: a look at one moment."""

    def __init__(self):
        self.children, self.names, self.arguments, self.dead = {}, {}, {}, set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                stat = (entry / "stat").read_text()
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            pid = int(entry.name)
            name, fields = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
            self.children.setdefault(int(fields[1]), []).append(pid)
            self.names[pid], self.arguments[pid] = name, words
            if fields[0] in "ZX":
                self.dead.add(pid)

    def naming(self, folder):
        return [pid for pid, words in self.arguments.items() if folder in words and pid not in self.dead]

    def of(self, launcher, target, folder):
        mpiexec = [pid for pid in self.children.get(launcher, []) if self.names[pid].startswith("mpiexec")]
        proxies = [pid for parent in mpiexec for pid in self.children.get(parent, [])]
        ranks = [pid for parent in proxies for pid in self.children.get(parent, [])]
        return {"launcher": [launcher], "mpiexec": mpiexec, "proxy": proxies, "rank": ranks,
                "all": self.naming(folder)}[target]


def mapped(pid, folder):
    """Names in a folder of which a process has mapped something."""
    try:
        words = Path(f"/proc/{pid}/maps").read_text().split()
    except OSError:
        return set()
    return {word[len(folder):].split("/")[0] for word in words if word.startswith(folder)}


def losses(log):
    """Pairs (step, loss) of whole lines; a resumed run appends."""
    pairs = []
    for line in log.read_text().splitlines() if log.exists() else []:
        if line.endswith("}") and '"kind":"step"' in line:
            step = json.loads(line)
            pairs.append((step["step"], step["loss"]))
    return pairs

#!/usr/bin/env python3
"""Counts how many configurations of other people's repositories `meshplan import` reads, and why it refuses the others.

  scripts/corpus.py [--meshplan PATH] [--json] [--list] [--starts] [--jobs 2] CHECKOUT...

Every file of a checkout that looks like a training configuration of a format that meshplan reads is given to
`meshplan import`, with what any user knows and nothing that is made for one file: a number of GPUs (GPUS, in this
order, until one is accepted, and last none, as a file may say it). Where a refusal names a complete command line ("for example: meshplan import ..."), as
of scripts that take arguments, that line is then tried as it stands; such readings are counted apart ("by its example").

Whether a file is counted is told by what it starts, never by the result of the import: scripts that generate, evaluate,
convert or prepare data, that train models of images or that only define arguments for others are left out, each kind
with its reason and number. A file whose program says nothing about itself is counted. A crash (signal, sanitizer,
"internal") and a hang are failures of their own. Exit code 1 if there was one.

--starts asks `meshplan check`, too, whether what was read would start: what people publish does, so that a rule which
it breaks is a rule, or a reading, to look at.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

GPUS = (8, 64, 512, 4096)
TIME_LIMIT_S = 60
MOST_BYTES = 1 << 20
SHELL = (".sh", ".bash", ".slurm", ".sbatch")
PRUNED = {".git", "node_modules", "__pycache__"}

# A command with one of these is Megatron's, as planner/src/formats/megatron_launch/launch.cpp has it.
MEGATRON_FLAGS = re.compile(r"--(num-layers|tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size|"
                            r"hidden-size|hybrid-layer-pattern)\b")
# A command with one of these trains with Hugging Face's Trainer, or a program that has its options.
TRAINER_FLAGS = re.compile(r"--(per_device_train(ing)?_batch_size|model_name_or_path)\b|llamafactory-cli train|axolotl train|"
                           r"accelerate(\.commands\.| )launch[^#]*--config_file", re.DOTALL)
PROGRAM = re.compile(r"(?:[\w./${}-]*?([\w.-]+)\.py\b)|(?:\s-m\s+([\w.]+))")
LAUNCHERS = {"torch.distributed.launch", "torch.distributed.run", "coverage", "venv", "pip"}

# What a program is for, by its name: the first that matches. None: it trains a language model, or does not say.
EXCLUSIONS = (
    ("generates text or serves", re.compile(r"inference|generat|server|serving|text_gen|chat_?learn_entrypoint_serve")),
    ("analyzes data", re.compile(r"analyze")),
    ("evaluates", re.compile(r"eval|prompt|mmlu|msdp|static_benchmark|compare_to_baseline|get_test_results|launch_jet|^validate$")),
    ("converts checkpoints or exports", re.compile(r"convert|checkpoint|^export$|hf2|2hf|mcore2|combine_state_dicts|saver|loader")),
    ("compresses a trained model", re.compile(r"^quantize$|^prune$|feature_extract")),
    ("reports what a training would need", re.compile(r"^report_")),
    ("trains with the Hugging Face trainer, whose flags are not Megatron's", re.compile(r"huggingface")),
    ("prepares data or tests", re.compile(r"pissa_init|llama_pro|preprocess|download|find_test|create_|sft_data|pytest|dataset")),
)
# Programs and folders of models that are not of text alone.
OTHER_MODELS = re.compile(r"multimodal|/mimo/|mimo\.|llava|_vl\b|_vl/|_omni|vision|vit_|clip|bert_classif")


# Models of more than text, by their names on the Hugging Face hub, and what only such trainings set.
OTHER_CHECKPOINTS = re.compile(r"[-_/]vl\b|-vl-|vision|llava|pixtral|smolvlm|internvl|voxtral|paddleocr|moss-vl|gemma-3n|"
                               r"gemma-4-e2b|glm-4\.6v|llama-4-(scout|maverick)", re.IGNORECASE)
OF_IMAGES = re.compile(r"^(processor_type|image_max_pixels|freeze_vision_tower|freeze_mm_modules|image_size)\s*:", re.MULTILINE)
# What a DeepSpeed configuration is for, by the folders that it lies in.
OTHER_DEEPSPEED = (
    ("trains an encoder (BERT)", re.compile(r"bert|deberta|glue|squad|MoQ", re.IGNORECASE)),
    ("trains a model of images, sound or several modalities", re.compile(r"imagenet|cifar|vit_|gan/|stable_diffusion|"
                                                                         r"pipeline_parallelism|visualchat", re.IGNORECASE)),
    ("compresses a trained model", re.compile(r"compression/")),
    ("a template, filled in by a script", re.compile(r"_TEMPLATE\.json$")),
    ("generates text or serves", re.compile(r"inference/")),
)


class Candidate:
    def __init__(self, path, kind, name=None, excluded=None):
        self.path, self.kind, self.name, self.excluded = path, kind, name or str(path), excluded


def programs_of(text):
    """The Python programs that a script names, without comments."""
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for match in PROGRAM.finditer(text):
        module = match.group(2)
        if module is None:
            found.append((match.group(0).strip(), match.group(1)))
        elif module not in LAUNCHERS:
            found.append((module, module.rsplit(".", 1)[-1]))
    return found


def script_exclusion(path, text):
    programs = programs_of(text)
    if not programs:
        if re.search(r"\b(torchrun|srun|mpirun|deepspeed|sbatch|llamafactory-cli|axolotl)\b|\$\{?(CMD|LAUNCH)", text):
            return None
        return "starts no program: arguments that other scripts source"
    reasons = []
    for whole, base in programs:
        reason = next((reason for reason, pattern in EXCLUSIONS if pattern.search(base) or
                       (base == "main" and pattern.search(whole))), None)
        reasons.append(reason)
    if all(reasons):
        return reasons[-1]
    trained = [whole for (whole, _), reason in zip(programs, reasons) if reason is None]
    if OTHER_MODELS.search(str(path)) or any(OTHER_MODELS.search(whole) for whole in trained):
        return "trains a model of images, sound or several modalities"
    return None


def test_case_exclusion(path, text):
    if re.search(r"^MODE: inference", text, re.MULTILINE) or "inference" in path.parts[-2]:
        return "generates text or serves"
    if re.search(r"multimodal|llava|mimo", str(path)):
        return "trains a model of images, sound or several modalities"
    return None


def shell_candidate(path, text):
    if not MEGATRON_FLAGS.search(text):
        if not TRAINER_FLAGS.search(text):
            return []
        other = next((reason for reason, pattern in OTHER_DEEPSPEED if pattern.search(str(path))), None)
        return [Candidate(path, "trainer script", excluded=other or script_exclusion(path, text))]
    return [Candidate(path, "Megatron-LM script", excluded=script_exclusion(path, text))]


def value_of(text, key):
    found = re.search(rf"^{key}\s*:[ \t]*['\"]?([^\s'\"#]+)", text, re.MULTILINE)
    return found.group(1) if found else ""


def trainer_exclusion(text, model):
    """Of LLaMA-Factory and axolotl: what the file starts."""
    if OTHER_CHECKPOINTS.search(model) or OF_IMAGES.search(text):
        return "trains a model of images, sound or several modalities"
    if re.search(r"^\s*export_dir\s*:", text, re.MULTILINE):
        return "merges or exports a checkpoint"
    trains = value_of(text, "do_train") == "true" or re.search(r"^(train_dataset|micro_batch_size)\s*:", text, re.MULTILINE)
    if not trains:
        return "evaluates" if "do_predict" in text or "do_eval" in text else "generates text or serves"
    return None


def yaml_candidates(path, text):
    has = lambda *keys: all(re.search(rf"^{key}\s*:", text, re.MULTILINE) for key in keys)
    if has("MODEL_ARGS") or has("MODEL_ARGS_1"):
        return [Candidate(path, "Megatron-LM model_config", excluded=test_case_exclusion(path, text))]
    if has("parallelism", "model", "optimizer"):
        return [Candidate(path, "nanotron YAML")]
    if has("model_name_or_path") and re.search(r"^(finetuning_type|template|stage|cutoff_len)\s*:", text, re.MULTILINE):
        return [Candidate(path, "LLaMA-Factory YAML", excluded=trainer_exclusion(text, value_of(text, "model_name_or_path")))]
    if has("model") and re.search(r"^(model_class|peft_config|dist_config)\s*:", text, re.MULTILINE):
        return [Candidate(path, "LLaMA-Factory YAML", excluded=trainer_exclusion(text, value_of(text, "model")))]
    if has("base_model") and re.search(r"^(sequence_len|micro_batch_size|datasets)\s*:", text, re.MULTILINE):
        model = value_of(text, "base_model")
        template = "a template, filled in by a program" if model.startswith("$") else None
        return [Candidate(path, "axolotl YAML", excluded=trainer_exclusion(text, model) or template)]
    if has("distributed_type", "num_processes"):
        one = re.search(r"^distributed_type:\s*['\"]?NO\b", text, re.MULTILINE)
        on_cores = re.search(r"^(use_cpu:\s*true|distributed_type:\s*MULTI_CPU)\b", text, re.MULTILINE)
        return [Candidate(path, "accelerate YAML", excluded="one process: nothing is parallel" if one else
                          "trains on processor cores" if on_cores else None)]
    return []


def json_candidates(path, text):
    if re.search(r'"(train_micro_batch_size_per_gpu|zero_optimization|train_batch_size)"\s*:', text):
        reason = next((reason for reason, pattern in OTHER_DEEPSPEED if pattern.search(str(path))), None)
        return [Candidate(path, "DeepSpeed JSON", excluded=reason)]
    return []


def toml_candidates(path, text):
    if re.search(r"^\[training\]", text, re.MULTILINE) and re.search(r"^\[model\]", text, re.MULTILINE):
        return [Candidate(path, "torchtitan TOML")]
    return []


def python_candidates(path, text):
    if path.name == "config_registry.py":
        names = re.findall(r"^def (\w+)\([^)]*\)\s*->[^:]*Config", text, re.MULTILINE)
        return [Candidate(path, "torchtitan function", f"{path}:{name}") for name in names]
    if re.search(r"->\s*\"?ConfigContainer", text):
        return recipe_candidates(path, text)
    return []


# Folders and names of recipes that train no model of text alone, and programs of the repository that return a
# configuration without being a recipe.
OTHER_RECIPES = re.compile(r"_vl\b|_vl/|_vl_|[/_]vlm|omni|audio|/wan\b|/wan/|flux|diffusion|/mimo|megatron_mimo|llava|ministral3|exaone45|"
                           r"step37|kimi_k25|minimax_m3")
RECIPE = re.compile(r"^def (\w+)\(((?:[^()]|\([^()]*\))*)\)\s*->\s*\"?ConfigContainer", re.MULTILINE)


def recipe_exclusion(path, name, parameters, relative):
    if {"tests", "scripts"} & set(relative.parts):
        return "a test, or a launcher that changes the configuration of its caller"
    if name.startswith("_"):
        return "a helper of other recipes"
    wanted = [word for word in re.split(r",(?![^\[\(]*[\]\)])", parameters)
              if word.strip() and "=" not in word and word.strip() not in ("*", "/") and not word.strip().startswith(("*", "#"))]
    if wanted:
        return "a helper that takes what its caller knows: " + ", ".join(word.split(":")[0].strip() for word in wanted)
    if OTHER_RECIPES.search("/" + str(relative)) or OTHER_RECIPES.search(f"/{name}"):
        return "trains a model of images, sound or several modalities"
    return None


def recipe_candidates(path, text):
    root = next((parent for parent in path.parents if (parent / "pyproject.toml").exists()), path.parent)
    return [Candidate(path, "Megatron-Bridge recipe", f"{path}:{match.group(1)}",
                      recipe_exclusion(path, match.group(1), match.group(2), path.relative_to(root)))
            for match in RECIPE.finditer(text)]


BY_SUFFIX = {".yaml": yaml_candidates, ".yml": yaml_candidates, ".json": json_candidates, ".toml": toml_candidates,
             ".py": python_candidates, **dict.fromkeys(SHELL, shell_candidate)}


def candidates_of(checkout):
    found = []
    for folder, folders, files in os.walk(checkout):
        folders[:] = sorted(name for name in folders if name not in PRUNED)
        for name in sorted(files):
            path = pathlib.Path(folder, name)
            look = BY_SUFFIX.get(path.suffix)
            if look is None or path.is_symlink() or path.stat().st_size > MOST_BYTES:
                continue
            found += look(path, path.read_text(encoding="utf-8", errors="replace"))
    return found


def run(command):
    """Outcome ("read", "refused", "crash", "hang") and what was said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "hang", f"no answer within {TIME_LIMIT_S} s"
    said = done.stderr.strip()
    if done.returncode < 0 or done.returncode > 125:
        return "crash", f"signal {-done.returncode}: {said[-200:]}"
    if re.search(r"Sanitizer|runtime error:|\binternal\b", said):
        return "crash", said[-300:]
    if done.returncode == 0:
        return "read", said
    return "refused", "\n".join(line for line in said.splitlines() if not line.startswith(("assumed", "ignored")))


def example_of(message):
    """The arguments of a command line that a refusal proposes, without the program's name."""
    found = re.search(r"for example:?\s+meshplan (import .*)", message)
    if not found:
        return None
    try:
        return shlex.split(found.group(1))
    except ValueError:
        return None


def judge(meshplan, candidate):
    """Outcome, what was said, how it was asked in words, and the words behind `import`."""
    first = None
    own_number = (0,) if re.search(r"\d+gpu_", candidate.name) else ()  # the recipe's name tells it
    for gpus in own_number + GPUS:
        line = [candidate.name, *(["--gpus", str(gpus)] if gpus else [])]
        outcome, said = run([meshplan, "import", *line])
        if outcome != "refused":
            return outcome, said, f"--gpus {gpus}" if gpus else "its own number of GPUs", line
        first = first or said
        if not re.search(r"\branks\b|divide|multiple|GPUs|num_processes", said):
            break
    else:
        line = [candidate.name]
        outcome, said = run([meshplan, "import", *line])
        if outcome == "read":
            return outcome, said, "no --gpus", line
    example = example_of(first)
    if example:
        for gpus in GPUS:
            line = [*example[1:], *([] if "--gpus" in example else ["--gpus", str(gpus)])]
            outcome, said = run([meshplan, "import", *line])
            if outcome != "refused":
                return "by example" if outcome == "read" else outcome, said, shlex.join(["import", *line]), line
            if "--gpus" in example:
                break
        else:
            outcome, said_alone = run([meshplan, *example])
            if outcome == "read":
                return "by example", said_alone, shlex.join(example), example[1:]
        return "refused", "following its example: " + said, "", []
    return "refused", first, "", []


def broken_rules(meshplan, line):
    """What `meshplan check` says that the stack refuses, of what `import` read with these words."""
    done = subprocess.run([meshplan, "check", *line, "--json"], capture_output=True, text=True, errors="replace",
                          timeout=TIME_LIMIT_S, check=False)
    try:
        rules = json.loads(done.stdout)["rules"]
    except (ValueError, KeyError):
        return ["not judged: " + done.stderr.strip().splitlines()[-1][:150]] if done.stderr.strip() else []
    return [f"{rule['rule']} {rule['message']}" for rule in rules
            if rule["verdict"] == "failed" and rule["effect"] == "refused"]


CAUSE_RULES = (
    (re.compile(r"^meshplan: "), ""),
    (re.compile(r"\n.*", re.DOTALL), ""),
    (re.compile(r"for example:? meshplan.*"), ""),
    (re.compile(r"'[^']*'"), "'..'"),
    (re.compile(r'"[^"]*"'), '".."'),
    (re.compile(r"\$\{?\w+\}?"), "$X"),
    (re.compile(r"\b\d[\d.eE+-]*\b"), "N"),
)


def cause_of(message, candidate):
    text = message.replace(candidate.name, "FILE").replace(str(candidate.path), "FILE")
    for pattern, by in CAUSE_RULES:
        text = pattern.sub(by, text)
    text = re.sub(r"(FILE|[\w./-]+/[\w./-]+)(:N)?:\s*", "", text)
    text = re.sub(r"\b[A-Z][A-Z0-9_]{2,}\b( \(\$N\))?(, \b[A-Z][A-Z0-9_]{2,}\b( \(\$N\))?)*", "X", text)
    text = re.sub(r"; (nearest|add it).*", "", text)
    return text.strip()[:150]


def asked_of(message):
    """The variables and arguments that a refusal asks for."""
    return re.findall(r"\b([A-Z][A-Z0-9_]+)\b (?:\(\$\d+\) )?(?:is|are) not set", message)


def print_table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) if i < 2 else str(cell).rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))


def report(results, listing):
    groups = collections.defaultdict(list)
    for result in results:
        groups[result["repository"], result["format"]].append(result)
    rows = [("repository", "format", "files", "read", "by its example", "refused", "crashed", "hung", "not counted")]
    for (repository, kind), members in sorted(groups.items()):
        counted = [m for m in members if not m["excluded"]]
        count = lambda outcome: sum(m["outcome"] == outcome for m in counted)
        rows.append((repository, kind, len(counted), count("read"), count("by example"), count("refused"),
                     sum(m["outcome"] == "crash" for m in members), sum(m["outcome"] == "hang" for m in members),
                     len(members) - len(counted)))
    print_table(rows)
    for (repository, kind), members in sorted(groups.items()):
        causes = collections.Counter(m["cause"] for m in members if not m["excluded"] and m["outcome"] == "refused")
        reasons = collections.Counter(m["excluded"] for m in members if m["excluded"])
        asked = collections.Counter(name for m in members if not m["excluded"] for name in m["asked"])
        if causes or reasons:
            print(f"\n{repository}, {kind}")
        for cause, number in causes.most_common():
            print(f"  {number:4} refused: {cause}")
        if asked:
            print("       asked for: " + ", ".join(f"{name} {n}" for name, n in asked.most_common(12)))
        for reason, number in reasons.most_common():
            read = sum(m["outcome"] == "read" for m in members if m["excluded"] == reason)
            print(f"  {number:4} not counted: {reason}" + (f" ({read} give a plan)" if read else ""))
    broken = [(rule, result["file"]) for result in results for rule in result["broken"] if not result["excluded"]]
    if broken:
        print(f"\n{len({file for _, file in broken})} that were read would not start:")
        first = {rule.split()[0]: (rule, file) for rule, file in reversed(broken)}
        for name, number in collections.Counter(rule.split()[0] for rule, _ in broken).most_common():
            print(f"  {number:4} {first[name][0][:200]}, as {first[name][1]}")
    for result in results:
        if result["outcome"] in ("crash", "hang"):
            print(f"\n{result['outcome']}: {result['file']}: {result['said'][:300]}")
    if listing:
        print()
        for result in results:
            note = f"not counted: {result['excluded']}" if result["excluded"] else result["outcome"]
            print(f"{result['file']}: {note}" + (f": {result['said'][:300]}" if result["outcome"] == "refused" else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--meshplan", default="build/release/cli/meshplan")
    parser.add_argument("--json", action="store_true", help="every file with its outcome, for programs")
    parser.add_argument("--list", action="store_true", help="every file below the tables")
    parser.add_argument("--starts", action="store_true", help="also whether what is read would start")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="formats whose name contains this")
    parser.add_argument("checkout", nargs="+")
    options = parser.parse_args()
    work = [(pathlib.Path(checkout).resolve().name, candidate)
            for checkout in options.checkout for candidate in candidates_of(checkout) if options.only in candidate.kind]

    def one(item):
        repository, candidate = item
        outcome, said, how, line = judge(options.meshplan, candidate)
        refused = outcome == "refused"
        asks = options.starts and outcome in ("read", "by example")
        return {"repository": repository, "format": candidate.kind, "file": candidate.name,
                "excluded": candidate.excluded, "outcome": outcome, "how": how, "said": said,
                "cause": cause_of(said, candidate) if refused else "", "asked": asked_of(said) if refused else [],
                "broken": broken_rules(options.meshplan, line) if asks else []}

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(one, work))
    if options.json:
        json.dump(results, sys.stdout, indent=1)
        print()
    else:
        report(results, options.list)
    return 1 if any(r["outcome"] in ("crash", "hang") for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

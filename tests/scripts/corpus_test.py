#!/usr/bin/env python3
"""scripts/corpus.py over a small checkout and a meshplan that reads, refuses, crashes or hangs by the file's name."""
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "scripts/corpus.py"

FAKE = """#!/usr/bin/env python3
import json, os, signal, sys
if sys.argv[1] == "check":
    bad = {"rule": "M4", "message": "heads(3) % tp(2) == 0", "verdict": "failed", "effect": "refused"}
    cost = {"rule": "M5", "message": "slow", "verdict": "failed", "effect": "costs"}
    print(json.dumps({"rules": [cost, bad] if "many" in sys.argv[2] else [cost]}))
    sys.exit(1)
name = sys.argv[2]
gpus = int(sys.argv[sys.argv.index("--gpus") + 1]) if "--gpus" in sys.argv else 8
if "crash" in name: os.kill(os.getpid(), signal.SIGSEGV)
if "internal" in name: sys.exit("meshplan: internal error: x")
if "many" in name and gpus < 64: sys.exit(f"meshplan: {name}: 8 ranks are no multiple of tp(8) * pp(8)")
if "asks" in name and "--args" not in sys.argv:
    sys.exit(f"meshplan: {name}: SIZE ($1) is not set\\n  for example: meshplan import {name} --args '7B 1'")
if "bad" in name: sys.exit(f"meshplan: {name}:7: --tp 3: is not read here; nearest: 4")
print("plan")
"""
FLAGS = " --num-layers 2 --tensor-model-parallel-size 1\n"
FILES = {
    "train.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "many.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "asks.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "bad1.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "bad2.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "crash.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "internal.sh": "torchrun pretrain_gpt.py" + FLAGS,
    "serve.sh": "python -m examples.inference.server" + FLAGS,  # would be read, and is not counted
    "bad_eval.sh": "# pretrain_gpt.py\npython evaluate_it.py" + FLAGS,
    "unnamed.sh": "torchrun $WHAT" + FLAGS,
    "arguments.sh": "ARGS='" + FLAGS + "'",
    "vl/run.sh": "torchrun examples/multimodal/train.py" + FLAGS,
    "other.sh": "echo nothing of Megatron\n",
    "cases/a/model_config.yaml": "MODEL_ARGS:\n  --num-layers: 2\n",
    "ds.json": '{"zero_optimization": {"stage": 3}}',
    "config_registry.py": "def small() -> Trainer.Config:\n  pass\ndef bad_one() -> Trainer.Config:\n  pass\n",
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "checkout")
        for name, text in FILES.items():
            path = checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        fake = Path(folder, "meshplan")
        fake.write_text(FAKE)
        fake.chmod(0o755)
        command = [sys.executable, CORPUS, "--meshplan", fake]
        done = subprocess.run([*command, "--json", checkout], capture_output=True, text=True, check=False)
        results = {str(Path(r["file"]).relative_to(checkout)): r for r in json.loads(done.stdout)}
        counted = {name: r["outcome"] for name, r in results.items() if not r["excluded"]}
        assert counted == {
            "train.sh": "read", "many.sh": "read", "asks.sh": "by example", "bad1.sh": "refused", "bad2.sh": "refused",
            "crash.sh": "crash", "internal.sh": "crash", "unnamed.sh": "read", "cases/a/model_config.yaml": "read",
            "ds.json": "read", "config_registry.py:small": "read", "config_registry.py:bad_one": "refused"}, counted
        excluded = {name: r["excluded"].split(":")[0] for name, r in results.items() if r["excluded"]}
        assert excluded == {"serve.sh": "generates text or serves", "bad_eval.sh": "evaluates",
                            "arguments.sh": "starts no program",
                            "vl/run.sh": "trains a model of images, sound or several modalities"}, excluded
        assert results["many.sh"]["how"] == "--gpus 64", results["many.sh"]
        causes = collections.Counter(r["cause"] for r in results.values() if r["cause"] and r["file"].endswith(".sh"))
        assert set(causes.values()) == {3}, causes  # bad1, bad2 and bad_eval are one cause
        assert done.returncode == 1, "crashes are failures"
        table = subprocess.run([*command, checkout], capture_output=True, text=True, check=False).stdout
        assert "2 refused: --tp N: is not read here" in table, table
        assert "1 not counted: generates text or serves (1 give a plan)" in table, table
        assert "would not start" not in table, table
        judged = subprocess.run([*command, "--starts", checkout], capture_output=True, text=True, check=False).stdout
        assert "1 that were read would not start:" in judged, judged
        assert "1 M4 heads(3) % tp(2) == 0, as " in judged and "slow" not in judged, judged
    print("corpus_test: ok")


if __name__ == "__main__":
    main()

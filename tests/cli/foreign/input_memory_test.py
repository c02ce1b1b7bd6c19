#!/usr/bin/env python3
"""Files that hold much: input_memory_test.py MESHPLAN

Small packed traces and logs unpack to much and are read block by block; plans are the largest texts
that are read as a whole. Each is read or refused, with its name, within 1 GiB.
"""
import functools
import gzip
import itertools
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_BYTES = 1 << 30  # of memory
MUCH = 320 << 20      # bytes of a file, unpacked: a tree of so much JSON takes more than MOST_BYTES
WHOLE = 1 << 26       # bytes of the largest text that is read as a whole
HEAD = b'{"schemaVersion": 1, "traceEvents": [\n'
STEP = b'{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":9e9},\n'
LAST = b'{"ph":"X","cat":"kernel","name":"last","pid":0,"tid":7,"ts":1,"dur":1}]}\n'
SPAN = (b'{"rank":0,"lane":"compute","phase":"forward","name":"the product of a layer","id":1,'
        b'"start_s":0,"end_s":1},')


def event(category, name, args=b"", start=b"5"):
    return (b'{"ph":"X","cat":"%s","name":"%s","pid":1,"tid":1,"ts":%s,"dur":1,"args":{%s}},\n'
            % (category, name, start, args))


def numbered(pattern, count):
    """What has `%d`, with numbers that repeat after `count`."""
    size = 0
    while size < MUCH // 2:
        for begin in range(0, count, 10000):
            block = b"".join(pattern % number for number in range(begin, min(begin + 10000, count)))
            yield block
            size += len(block)


def much(text):
    block = text * ((1 << 20) // len(text) + 1)
    return [block] * (MUCH // len(block) + 1)


def profiled_operations(count):
    """Operators that launch a kernel each, with names and shapes of their own."""
    for number in range(count):
        start = b"%d" % (10 + 3 * number)
        yield (event(b"cpu_op", b"aten::mm", b'"Input Dims":[[64,%d],[%d,64]]' % (number, number), start)
               + event(b"cuda_runtime", b"cudaLaunchKernel", b'"correlation":%d' % number, start)
               + event(b"kernel", b"gemm_%d" % number, b'"correlation":%d,"stream":7' % number, start))


@functools.lru_cache(maxsize=1)
def packed_once(block):
    """A file of gzip; such files one after another are one file."""
    return gzip.compress(block, compresslevel=1)


def all_blocks(parts):
    for part in parts:
        yield from [part] if isinstance(part, bytes) else part


def traces():
    """File, its parts, and the exit code: 2 where nothing of it can be read."""
    kernel = event(b"kernel", b"gemm", b'"stream":7,"correlation":1')
    yield "operations.json", [HEAD, STEP, b"".join(profiled_operations(100000)), LAST], 0
    yield "skipped.json", [HEAD, STEP, much(event(b"python_function", b"forward")), LAST], 0
    yield "skipped_key.json", [b'{"other":[', much(b'{"a":[1,2,3]},'), b"0],", HEAD[1:], LAST], 0
    yield "kernels.json", [HEAD, STEP, much(kernel), LAST], 2
    yield "launches.json", [HEAD, much(event(b"cuda_runtime", b"l", b'"correlation":1')), LAST], 2
    yield "scopes.json", [HEAD, much(event(b"cpu_op", b"o", b'"Input Dims":[[64,64],[64]]')), LAST], 2
    yield "names.json", [HEAD, numbered(event(b"cpu_op", b"n" * 400 + b"%d"), 300000), LAST], 2
    yield "zeros.json", [much(b"\0")], 2
    yield "zeros_within.json", [HEAD, much(b"\0")], 2
    yield "blanks.json", [HEAD, much(b" "), LAST], 2
    yield "string.json", [HEAD, b'{"name": "', much(b"x")], 2
    yield "skipped_string.json", [b'{"other": "', much(b"x")], 2
    yield "number.json", [HEAD, much(b"1")], 2
    yield "deep.json", [HEAD, much(b"[")], 2
    yield "deep_objects.json", [HEAD, much(b'{"a":')], 2
    yield "numbers.json", [HEAD, much(b"1,")], 2
    yield "numbers_within.json", [HEAD, b'{"ph":"X","args":{"stream":[', much(b"1,")], 2
    yield "lists_within.json", [HEAD, b'[', much(b"[],")], 2
    yield "keys_within.json", [HEAD, b'{"pid":{', numbered(b'"k%d":1,', 1 << 21)], 2
    yield "keys.json", [b"{", much(b'"k":1,'), HEAD[1:]], 2


def own_traces():
    """As `meshplan simulate --trace` writes them, but for what they hold."""
    own = b'{"schema_version":1,"measured":true,"world_size":1,"plan":{},'
    yield "spans.json", [own, b'"spans":[', much(SPAN)], 2
    yield "span_names.json", [own, b'"spans":[', much(SPAN.replace(b"layer", b"layer" * 600))], 2
    yield "losses.json", [own, b'"spans":[],"losses":[', much(b"1,")], 2
    yield "own_keys.json", [own, b'"spans":[{', numbered(b'"k%d":1,', 1 << 21)], 2
    yield "plan_keys.json", [own, b'"spans":[],"more":{', numbered(b'"k%d":1,', 1 << 21)], 2


def logs():
    line = b" iteration %d/ 9 | elapsed time per iteration (ms): 5.0 |\n"
    yield "steps.log", [numbered(line, 10000)], 0
    yield "endless_steps.log", [numbered(line, 3 << 20)], 2
    yield "line.log", [much(b"word ")], 2
    yield "lines.log", [much(b"\n")], 2
    yield "blank.log", [much(b" ")], 2


def plans():
    for name, element in ("numbers", b"0,"), ("lists", b"[],"), ("objects", b"{},"), ("strings", b'"",'):
        yield f"plan_{name}.json", b"[" + element * (WHOLE // len(element) - 2) + b"0]", 2
    yield "plan_keys.json", b"{" + b",".join(b'"%07d":0' % key for key in range(WHOLE // 13)) + b"}", 2


def files(folder):
    """Writes one at a time. @returns its name, the command that reads it, and the exit code"""
    for file, parts, expected in itertools.chain(traces(), own_traces(), logs()):
        packed = f"{file}.gz"
        with open(folder / packed, "wb") as out:
            for block in all_blocks(parts):
                out.write(packed_once(block))
        yield packed, ["compare", "plan.json", packed], expected
    for file, text, expected in plans():
        (folder / file).write_bytes(text)
        yield file, ["simulate", file], expected


def peak_bytes(words, folder):
    """Runs a command. @returns its exit code, what it said, and the memory it took"""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return child.returncode, said.read().decode(errors="replace"), usage.ru_maxrss * 1024


def takes_little(meshplan):
    """Does the command start with MOST_BYTES of addresses? With a sanitizer it does not."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    return subprocess.run([meshplan, "--version"], capture_output=True, preexec_fn=limit).returncode == 0


def main(meshplan):
    faults = []
    is_measured = takes_little(meshplan)
    if not is_measured:
        print("memory is not measured: a sanitizer takes its own")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([meshplan, "simulate", "--model", "llama3-8b", "--cluster", "dgx-h100",
                        "--global-batch", "8", "--seq-len", "4096", "--tp", "8", "--out", "plan.json"], cwd=folder, check=True, capture_output=True)
        for file, words, expected in files(folder):
            code, said, peak = peak_bytes([meshplan, *words], folder)
            size = (folder / file).stat().st_size
            print(f"{file}: {size} bytes, exit code {code}, {peak >> 20} MiB: {said[:200].strip()}", flush=True)
            if code != expected:
                faults.append(f"{file}: exit code {code}, expected {expected}: {said[:300]}")
            if code == 2 and file not in said:
                faults.append(f"{file}: is not named: {said[:300]}")
            if is_measured and peak > MOST_BYTES:
                faults.append(f"{file}: took {peak} bytes of memory, more than {MOST_BYTES}")
            (folder / file).unlink()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/env python3
"""scripts/check_structure.py sees each wall that is missing: a small tree without one, then with each fault planted."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_structure.py"

SOUND = {
    "core/include/core/units.hpp": "",
    "core/src/units.cpp": '#include "core/units.hpp"\n',
    "sim/include/sim/play.hpp": '#include "sim/prices/price.hpp"\n',
    "sim/include/sim/prices/price.hpp": '#include "core/units.hpp"\n',
    "sim/src/engine/player.hpp": '#include "prices/table.hpp"\n',
    "sim/src/engine/player.cpp": '#include "engine/player.hpp"\n#include "player.hpp"\n#include <vector>\n',
    "sim/src/prices/table.hpp": '#include "sim/prices/price.hpp"\n',
    "planner/src/search.cpp": '#include "sim/play.hpp"\n',
    "kernels/include/kernels/backend.hpp": "",
    "kernels/cuda/include/kernels/cuda/device.hpp": '#include "kernels/backend.hpp"\n',
    "kernels/cuda/src/device.cpp": '#include "kernels/cuda/device.hpp"\n',
    "cli/src/main.cpp": '#include "kernels/cuda/device.hpp"\n',
    "build/ci/junk.cpp": '#include "cli/src/main.cpp"\n',
    "tests/sim/play_test.cpp": '#include "engine/player.hpp"\n',
}


def check(changes):
    """What the script prints for the sound tree with these changes. @returns exit code, output, errors"""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (SOUND | changes).items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        ended = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr


class CheckStructure(unittest.TestCase):
    def refuses(self, changes, *expected):
        code, _, errors = check(changes)
        self.assertEqual(code, 1)
        for text in expected:
            self.assertIn(text, errors)
        self.assertEqual(errors.count("check_structure: "), 1, errors)

    def test_a_sound_tree_passes_and_is_printed(self):
        code, output, errors = check({})
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("sim -> core\n    . -> prices\n    engine -> prices\n    prices -> -\n", output)
        self.assertIn("planner -> sim\n", output)
        self.assertIn("kernels -> -\n    . -> -\n    cuda -> cuda/include\n    cuda/include -> .\n", output)

    def test_an_include_of_a_layer_above(self):
        self.refuses({"core/src/hash.cpp": '\n#include "sim/play.hpp"\n'},
                     "core must not include sim", 'core/src/hash.cpp:2: #include "sim/play.hpp"')

    def test_what_a_newer_standard_library_does_not_bring_along(self):
        self.refuses({"core/src/units.cpp": '#include <vector>\n\nstd::int64_t one();\n'},
                     "core/src/units.cpp:3: std::int64_t needs #include <cstdint>")
        self.refuses({"sim/src/engine/player.cpp": "int x = std::ranges::max(1, 2);\n"}, "needs #include <algorithm>")
        through_a_header = {"core/include/core/units.hpp": "#include <cstdint>\n",
                            "sim/src/engine/player.cpp": '#include "sim/play.hpp"\nstd::uint8_t one();\n'}
        self.assertEqual(check(through_a_header)[0], 0)

    def test_layers_that_must_not_meet(self):
        self.refuses({"reports/src/table.cpp": '#include "kernels/backend.hpp"\n'}, "reports must not include kernels")

    def test_rooms_in_a_circle(self):
        self.refuses({"sim/src/prices/table.cpp": '#include "engine/player.hpp"\n'},
                     "rooms of sim include each other in a circle: engine -> prices -> engine",
                     'sim/src/prices/table.cpp:1: #include "engine/player.hpp"',
                     'sim/src/engine/player.hpp:1: #include "prices/table.hpp"')

    def test_a_circle_of_three_rooms_through_the_door(self):
        self.refuses({"sim/src/fit/fit.cpp": '#include "engine/player.hpp"\n',
                      "sim/src/fit/fit.hpp": "",
                      "sim/src/prices/of_fit.cpp": '#include "fit/fit.hpp"\n'},
                     "circle: engine -> prices -> fit -> engine")

    def test_a_header_that_nobody_else_includes(self):
        self.refuses({"sim/include/sim/secret.hpp": "", "sim/src/secret.cpp": '#include "sim/secret.hpp"\n',
                      "tests/sim/secret_test.cpp": '#include "sim/secret.hpp"\n'},
                     "sim/include/sim/secret.hpp is included by no other layer, bench or cli")

    def test_a_bench_is_another(self):
        code, _, errors = check({"sim/include/sim/timed.hpp": "",
                                 "bench/sim/timed_bench.cpp": '#include "sim/timed.hpp"\n'})
        self.assertEqual((code, errors), (0, ""))

    def test_thirty_one_files(self):
        self.assertEqual(check({f"docs/page{i}.md": "" for i in range(30)})[0], 0)
        self.refuses({f"docs/page{i}.md": "" for i in range(31)}, "docs holds 31 files side by side; at most 30")
        self.refuses({f"models/presets/m{i}.json": "" for i in range(31)}, "models/presets holds 31 files")


if __name__ == "__main__":
    unittest.main()

#include "python/configuration.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner::python {
namespace {

using Catch::Matchers::Contains;

Json value_of(const std::string& expression) {
  return read_configuration("def f():\n    return C(x=" + expression + ")\n", "f.py", "")
      .tree.at("x");
}

std::string error_of(const std::string& text, const std::string& function = "") {
  try {
    read_configuration(text, "f.py", function);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

// Values that Python 3.11 prints for the same expressions.
TEST_CASE("Literals and arithmetic have Python's values", "[formats][python]") {
  CHECK(value_of("1 * 8192") == 8192);
  CHECK(value_of("2 ** 10 // 3 % 7") == 5);
  CHECK(value_of("-7 // 2") == -4);
  CHECK(value_of("-7 % 3") == 2);
  CHECK(value_of("7 / 2") == 3.5);
  CHECK(value_of("-2 ** 2") == -4);
  CHECK(value_of("2 ** -1") == 0.5);
  CHECK(value_of("(1 + 2) * 3 - -1") == 10);
  CHECK(value_of("1_000_000") == 1000000);
  CHECK(value_of("3e-4") == 3e-4);
  CHECK(value_of("\"a\" 'b\\n'") == "ab\n");
  CHECK(value_of("r\"\\d\"") == "\\d");
  CHECK(value_of("[1, (2, 3), {\"k\": None}, True]") ==
        Json::parse(R"([1,[2,3],{"k":null},true])"));
  CHECK(value_of("(4,)") == Json::array({4}));
}

TEST_CASE("What only a run could tell stays text", "[formats][python]") {
  const auto source = [](const std::string& expression) {
    return value_of(expression).at(kSource).get<std::string>();
  };
  CHECK(source("len(layers) // 2") == "len(layers) // 2");
  CHECK(source("f\"{name}\"") == "f\"{name}\"");
  CHECK(source("8 if big else 4") == "8 if big else 4");
  CHECK(source("[i for i in layers]") == "[i for i in layers]");
  CHECK(source("os.environ[\"TP\"]") == "os.environ[\"TP\"]");
  CHECK(source("1 // 0") == "1 // 0");
  CHECK(source("9 ** 60") == "9 ** 60");
  CHECK(source("lambda x: x").starts_with("lambda"));
  CHECK(value_of("world()[0]").at(kPlace) == "f.py:2");
}

// Values that Python 3.11 prints for the same expressions.
TEST_CASE("Conditions, lists and mappings have Python's values", "[formats][python]") {
  CHECK(value_of("8 if 3 > 2 and not False else 4") == 8);
  CHECK(value_of("[i * i for i in range(5) if i % 2 == 0]") == Json::parse("[0,4,16]"));
  CHECK(value_of("{\"l\" + str(\"1\"): len([1, 2]) for i in range(1)}") ==
        Json::parse(R"({"l1":2})"));
  CHECK(value_of("{**{\"a\": 1, \"b\": 2}, \"a\": 3}") == Json::parse(R"({"a":3,"b":2})"));
  CHECK(value_of("[0, 1, 2, 3][1:-1]") == Json::parse("[1,2]"));
  CHECK(value_of("[*range(2), 7][-1]") == 7);
  CHECK(value_of("\"b\" in [\"a\", \"b\"] and None is None") == true);
  CHECK(value_of("max(2, 1 or 5) + int(3.9)") == 5);
  CHECK(value_of("sum(i for i in range(4))") == 6);
}

TEST_CASE("Names, attributes and functions of the file are followed", "[formats][python]") {
  const Configuration read = read_configuration(R"(
"""Plans."""
from torchtitan.models.llama3 import (
    model_registry,  # the registry
)

SEQ = 8192


def base():
    return Trainer.Config(training=TrainingConfig(context=SEQ), seed=1)


def mine() -> Trainer.Config:
    """What I train."""
    config = base()
    config.training.tokens = 2 * SEQ
    parallelism = config.parallelism
    config.parallelism = ParallelismConfig(
        tp=8,
        pp=4,  # across nodes
    )
    config.parallelism.tp = 4
    return config
)",
                                                "f.py", "");
  CHECK(read.function == "mine");
  CHECK(call_name(read.tree) == "Trainer.Config");
  CHECK(read.tree["training"]["context"] == 8192);
  CHECK(read.tree["training"]["tokens"] == 16384);
  CHECK(read.tree["parallelism"]["tp"] == 4);
  CHECK(read.tree["parallelism"]["pp"] == 4);
  CHECK(read.imports.at("model_registry") == "torchtitan.models.llama3");
  CHECK(read.notes.empty());
}

TEST_CASE("What a branch or call that is not known may have changed is not known",
          "[formats][python]") {
  const Configuration read = read_configuration(R"(
def f():
    config = C(x=1, y=1, z=D())
    if fast:
        config.x = 2
    for i in range(3):
        config.y = i
    while slow():
        config.w = 1
    enable(config.z)
    return config
)",
                                                "f.py", "");
  CHECK(read.tree["x"][kSource] == "config.x = 2");
  CHECK(read.tree["x"][kPlace] == "f.py:5");
  CHECK(read.tree["y"] == 2);
  CHECK(is_unknown(read.tree["w"]));
  CHECK(read.tree["z"][kTouched][0][kSource] == "enable(config.z)");
  REQUIRE(read.notes.size() == 3);
  CHECK_THAT(read.notes[0], Contains("f.py:4: 'if fast:'"));
  CHECK_THAT(read.notes[2], Contains("f.py:10: 'enable(config.z)'"));
}

TEST_CASE("Functions are followed with their arguments, and objects are shared as in Python",
          "[formats][python]") {
  const Configuration read = read_configuration(R"(
from copy import deepcopy
from dataclasses import replace
from functools import partial

def layer(i, *, width=4, **rest):
    return Layer(i=i, width=width * 2, **rest)

def base(width, depth=2):
    layers = []
    for i in range(depth):
        if i == 0:
            layers.append(layer(i, width=width, first=True))
        else:
            layers.append(layer(i))
    return C(layers=layers, p=P(tp=1), q=P(tp=1))

TABLE = {"small": partial(base, depth=3)}

def mine():
    config = TABLE["small"](8)
    old = deepcopy(config.p)
    shared = config.p
    shared.tp = 4
    config.q = replace(config.q, pp=2)
    config.old = old
    return config
)",
                                                "f.py", "mine");
  CHECK(read.tree["layers"].size() == 3);
  CHECK(read.tree["layers"][0]["width"] == 16);
  CHECK(read.tree["layers"][0]["first"] == true);
  CHECK(read.tree["layers"][2]["width"] == 8);
  CHECK(read.tree["p"]["tp"] == 4);
  CHECK(read.tree["old"]["tp"] == 1);
  CHECK(read.tree["q"]["tp"] == 1);
  CHECK(read.tree["q"]["pp"] == 2);
}

TEST_CASE("Imports are followed into files, and classes give their fields first values",
          "[formats][python]") {
  const std::map<std::string, std::string> files = {
      {"a/b/__init__.py",
       "from .sizes import WIDTH\ndef registry(name):\n    return M(name=name, w=WIDTH)\n"},
      {"a/b/sizes.py", "WIDTH = 64\n"},
      {"a/config.py",
       "from dataclasses import dataclass, field\n\n@dataclass\nclass Part:\n    degree: int = 7\n"
       "    names: list = field(default_factory=lambda: [\"m\"])\n\n"
       "class Trainer:\n    @dataclass\n    class Config:\n"
       "        part: Part = field(default_factory=Part)\n        seed: int = 1\n"}};
  const Configuration read = read_configuration(
      R"(
from . import registry
from a.config import Trainer
from nowhere import helper

def mine():
    config = Trainer.Config(model=registry("8B"))
    config.part.degree += 1
    config.other = helper(1)
    return config
)",
      "a/b/f.py", "", [&](const std::string& path) {
        const auto found = files.find(path);
        return found == files.end() ? std::nullopt : std::optional(found->second);
      });
  CHECK(read.classes[0] == "Trainer.Config");
  CHECK(read.tree["model"]["w"] == 64);
  CHECK(read.tree["part"]["degree"] == 8);
  CHECK_FALSE(read.tree.contains("seed"));
  CHECK(read.initial["seed"] == 1);
  CHECK(read.initial["part"]["names"] == Json::parse(R"(["m"])"));
  CHECK(call_name(read.tree["other"]) == "helper");
}

TEST_CASE("Which function is meant must be clear", "[formats][python]") {
  const std::string two = "def a():\n    return C()\n\ndef b():\n    return C()\n";
  CHECK_THAT(error_of(two), Contains("2 functions") && Contains("meshplan import f.py:a"));
  CHECK(read_configuration(two, "f.py", "b").function == "b");
  CHECK_THAT(error_of(two, "c"), Contains("unknown function 'c'") && Contains("did you mean"));
  CHECK_THAT(error_of("x = 1\n"), Contains("no function returns a configuration"));
}

TEST_CASE("What is no Python is refused with its line", "[formats][python]") {
  CHECK_THAT(error_of("def f():\n    return C(\n"), Contains("f.py:2: a bracket never closes"));
  CHECK_THAT(error_of("x = 'abc\n"), Contains("f.py:1: a string never ends"));
  CHECK_THAT(error_of("x = )\n"), Contains("f.py:1: ')' closes nothing"));
  CHECK_THAT(error_of("def f():\n    return C(x=$1)\n"), Contains("f.py:2") && Contains("'$'"));
}

TEST_CASE("Hostile Python is refused before it takes time or memory",
          "[formats][python][hostile]") {
  CHECK_THAT(error_of("x = " + repeated("[", 5000)), Contains("deeper than 64"));
  CHECK_THAT(error_of("def f():\n    return f()\n"), Contains("no function") || Contains("deep"));
  CHECK_THAT(error_of("def f():\n    return C(x=g())\n\ndef g():\n    return C(x=f())\n", "f"),
             Contains("more than 16 deep"));
  // Ten names, each a list of nine of the one before.
  std::string bomb = "a0 = [1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 10; ++i)
    bomb += fmt::format("a{} = [{}1]\n", i, repeated(fmt::format("a{},", i - 1), 9));
  bomb += "def f():\n    return C(x=a9)\n";
  CHECK_THAT(error_of(bomb), Contains("more than 131072 values"));
  CHECK(error_of("def f():\n    return C(x=" + repeated("-", 50000) + "1)\n").empty());
  CHECK(error_of("def f():\n    return C(x=" + repeated("2**", 50000) + "1)\n").empty());
  CHECK(error_of("def f():\n    return C(x=" + repeated("1+", 50000) + "1)\n").empty());
  CHECK(error_of("def f():\n    return C(x=f" + repeated(".a", 50000) + ")\n").empty());
  CHECK(error_of("def f():\n    return C(x=g" + repeated("()", 50000) + ")\n").empty());
  CHECK(error_of("def f():\n    return C(x=" + repeated("1 if y else ", 20000) + "1)\n").empty());
  CHECK(error_of("def f():\n" + repeated("    if a:\n        x = 1\n    el", 1) + "se:\n" +
                 "        x = 2\n    return C(x=x)\n")
            .empty());
  CHECK_THAT(error_of("def f():\n    a = []\n    for i in range(10000):\n        for j in "
                      "range(10000):\n            a.append([a])\n    return C(x=a)\n"),
             Contains("more than"));
  CHECK(error_of("def f():\n    a = []\n    for i in range(9000):\n        a = [a]\n"
                 "    return C(x=a)\n")
            .empty());
  CHECK_FALSE(error_of("def f():\n    return C(x=" + repeated("(", 63) + "\n").empty());
}

}  // namespace meshplan::planner::python

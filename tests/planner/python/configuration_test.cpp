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
  CHECK(source("[i for i in range(4)]") == "[i for i in range(4)]");
  CHECK(source("os.environ[\"TP\"]") == "os.environ[\"TP\"]");
  CHECK(source("1 // 0") == "1 // 0");
  CHECK(source("9 ** 60") == "9 ** 60");
  CHECK(source("lambda x: x").starts_with("lambda"));
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

TEST_CASE("Branches, loops and calls with effects are noted, never run", "[formats][python]") {
  const Configuration read = read_configuration(R"(
def f():
    config = C(x=1)
    if fast:
        config.x = 2
    for i in range(3):
        config.x = i
    enable(config)
    return config
)",
                                                "f.py", "");
  CHECK(read.tree["x"] == 1);
  REQUIRE(read.notes.size() == 3);
  CHECK_THAT(read.notes[0], Contains("f.py:4: 'if fast:'"));
  CHECK_THAT(read.notes[2], Contains("f.py:8: 'enable(config)'"));
}

TEST_CASE("Which function is meant must be clear", "[formats][python]") {
  const std::string two = "def a():\n    return C()\n\ndef b():\n    return C()\n";
  CHECK_THAT(error_of(two), Contains("2 functions") && Contains("f.py:a"));
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
  CHECK_THAT(error_of(bomb), Contains("more than 65536 values"));
  CHECK(error_of("def f():\n    return C(x=" + repeated("-", 50000) + "1)\n").empty());
  CHECK(error_of("def f():\n    return C(x=" + repeated("2**", 50000) + "1)\n").empty());
  CHECK(error_of("def f():\n    return C(x=" + repeated("1+", 50000) + "1)\n").empty());
  CHECK_FALSE(error_of("def f():\n    return C(x=" + repeated("(", 63) + "\n").empty());
}

}  // namespace meshplan::planner::python

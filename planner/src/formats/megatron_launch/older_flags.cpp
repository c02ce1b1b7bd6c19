#include "formats/megatron_launch/older_flags.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace meshplan::planner::megatron {
namespace {

struct OlderFlag {
  std::string_view name;
  std::string_view now;
  std::string_view value;  // empty: its own
};
constexpr std::array kOlder = {
    OlderFlag{"--model-parallel-size", "--tensor-model-parallel-size", ""},
    OlderFlag{"--batch-size", "--micro-batch-size", ""},
    // Recomputation of whole layers was all there was.
    OlderFlag{"--checkpoint-activations", "--recompute-granularity", "full"},
    OlderFlag{"--activations-checkpoint-method", "--recompute-granularity", "full"},
    OlderFlag{"--activations-checkpoint-method", "--recompute-method", ""},
    OlderFlag{"--activations-checkpoint-num-layers", "--recompute-num-layers", ""},
    OlderFlag{"--fp8-hybrid", "--fp8-format", "hybrid"},
    OlderFlag{"--fp8-e4m3", "--fp8-format", "e4m3"},
    OlderFlag{"--use-llama2-rotary-position-embeddings", "--use-rotary-position-embeddings", ""},
};

}  // namespace

void replace_older_flags(std::vector<Argument>& arguments) {
  std::vector<Argument> replaced;
  for (const Argument& argument : arguments) {
    for (const OlderFlag& older : kOlder) {
      if (argument.flag != older.name) continue;
      const bool given = std::ranges::any_of(
          arguments, [&](const Argument& other) { return other.flag == older.now; });
      if (given) continue;
      Argument now{std::string(older.now), argument.values, argument.place};
      if (!older.value.empty()) now.values = {shell::Value{std::string(older.value), {}}};
      replaced.push_back(std::move(now));
    }
  }
  std::erase_if(arguments, [](const Argument& argument) {
    return std::ranges::any_of(kOlder,
                               [&](const OlderFlag& older) { return argument.flag == older.name; });
  });
  arguments.insert(arguments.end(), replaced.begin(), replaced.end());
}

}  // namespace meshplan::planner::megatron

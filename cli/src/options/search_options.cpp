#include "options/search_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/error.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

using planner::Constraints;
using planner::DegreeBounds;

/// What can be fixed and bounded by name, with the pin that its own flag sets.
struct NamedDegree {
  const char* name;
  const char* flag;
  std::optional<int> Constraints::*pin;
  std::optional<int> DegreeBounds::*bound;
};
constexpr std::array kDegreeNames = {
    NamedDegree{"tp", "--tp", &Constraints::tp, &DegreeBounds::tp},
    NamedDegree{"pp", "--pp", &Constraints::pp, &DegreeBounds::pp},
    NamedDegree{"vpp", "--vpp", &Constraints::vpp, &DegreeBounds::vpp},
    NamedDegree{"dp", "--dp", &Constraints::dp, &DegreeBounds::dp},
    NamedDegree{"cp", "--cp", &Constraints::cp, &DegreeBounds::cp},
    NamedDegree{"ep", "--ep", &Constraints::ep, &DegreeBounds::ep},
    NamedDegree{"etp", "--etp", &Constraints::etp, &DegreeBounds::etp},
    NamedDegree{"mbs", "--micro-batch", &Constraints::micro_batch_size,
                &DegreeBounds::micro_batch_size},
    NamedDegree{"zero", "--zero", &Constraints::zero_stage, &DegreeBounds::zero_stage}};

struct DegreeSetting {
  const NamedDegree* degree = nullptr;
  int value = 0;
};

DegreeSetting parse_degree(const std::string& flag, const std::string& text) {
  std::vector<std::string> names;
  for (const NamedDegree& degree : kDegreeNames) names.emplace_back(degree.name);
  const auto equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto degree = std::ranges::find_if(
      kDegreeNames, [&](const NamedDegree& known) { return known.name == name; });
  if (equals == std::string::npos || degree == kDegreeNames.end())
    throw ConfigError(fmt::format("{} {}: expected NAME=VALUE, with one of {}; nearest: {}", flag,
                                  text, fmt::join(names, ", "), nearest_choice(name, names)));
  DegreeSetting setting{.degree = &*degree};
  const char* begin = text.data() + equals + 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, setting.value);
  if (error != std::errc() || rest != end)
    throw ConfigError(fmt::format("{} {}: '{}' is no whole number; for example {}=2", flag, text,
                                  std::string(begin, end), name));
  return setting;
}

/// Sets `target`, unless it holds something else already.
void set_degree(std::optional<int>& target, int value, const std::string& said,
                const std::string& before) {
  if (target && *target != value)
    throw ConfigError(fmt::format("{} contradicts {} {}; leave one out", said, before, *target));
  target = value;
}

}  // namespace

void add_search_options(Command& command, SearchOptions& options) {
  command
      .option("--space", options.space,
              fmt::format("what is searched where nothing is pinned: {}, or a file like "
                          "planner/spaces/default.json",
                          fmt::join(planner::space_names(), ", ")))
      .suggests(planner::space_names())
      .takes_file()
      .option("--fix", options.fix, "pin a degree by name: tp=8 is --tp 8; may be repeated")
      .option("--min", options.at_least, "the least of a degree that is searched: pp=2")
      .option("--max", options.at_most, "the most of a degree that is searched: pp=16");
}

void apply(const SearchOptions& options, planner::SearchRequest& request) {
  const std::vector<std::string> presets = planner::space_names();
  const bool file =
      options.space.find('.') != std::string::npos || options.space.find('/') != std::string::npos;
  request.space = file ? planner::parse_space(read_file(options.space), options.space)
                       : planner::space_preset(options.space);
  Constraints& pins = request.constraints;
  for (const std::string& text : options.fix) {
    const auto [degree, value] = parse_degree("--fix", text);
    set_degree(pins.*degree->pin, value, "--fix " + text, degree->flag);
  }
  for (const std::string& text : options.at_least) {
    const auto [degree, value] = parse_degree("--min", text);
    set_degree(pins.at_least.*degree->bound, value, "--min " + text,
               fmt::format("--min {}", degree->name));
  }
  for (const std::string& text : options.at_most) {
    const auto [degree, value] = parse_degree("--max", text);
    set_degree(pins.at_most.*degree->bound, value, "--max " + text,
               fmt::format("--max {}", degree->name));
  }
  for (const NamedDegree& degree : kDegreeNames) {
    const std::optional<int> low = pins.at_least.*degree.bound, high = pins.at_most.*degree.bound;
    const std::optional<int> pin = pins.*degree.pin;
    if (low && high && *low > *high)
      throw ConfigError(
          fmt::format("--min {0}={1} contradicts --max {0}={2}; nearest: --min {0}={2}",
                      degree.name, *low, *high));
    if (pin && low && *pin < *low)
      throw ConfigError(fmt::format("{0} {1} contradicts --min {2}={3}; leave one out", degree.flag,
                                    *pin, degree.name, *low));
    if (pin && high && *pin > *high)
      throw ConfigError(fmt::format("{0} {1} contradicts --max {2}={3}; leave one out", degree.flag,
                                    *pin, degree.name, *high));
  }
}

}  // namespace meshplan::cli

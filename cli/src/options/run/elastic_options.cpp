#include "options/run/elastic_options.hpp"

#include <charconv>
#include <fmt/format.h>
#include <string_view>

#include "core/error.hpp"

namespace meshplan::cli {

void add_elastic_options(Command& command, ElasticOptions& options) {
  command.group("Going on after losses (docs/elastic)")
      .option("--elastic", options.range,
              "go on after ranks or hosts are lost, with a new plan for what is left, and on more "
              "of them when they are back: LEAST:MOST ranks, default 1 to those of the plan")
      .value_is_optional()
      .of_launcher()
      .option("--spares", options.spares,
              "hosts that are used when others are lost, as --hosts names them")
      .of_launcher()
      .option("--failures-per-hour", options.failures_per_hour, "more of them end an elastic run")
      .at_least(1)
      .of_launcher()
      .option("--node-failures", options.node_failures,
              "failures within an hour after which a host is left out, unless it is the last one")
      .at_least(1)
      .of_launcher()
      .option("--retry-after", options.retry_after_s,
              "seconds after its first failure when a host is tried again; the next three "
              "within an hour double them")
      .at_least(0)
      .of_launcher()
      .flag("--replace-slow-ranks", options.replace_slow_ranks,
            "give a rank less work that computes so much longer than its peers (--warn-slow-rank), "
            "or go on without it: whichever is predicted to be faster, if it is worth the move")
      .of_launcher();
}

RankRange parse_rank_range(const std::string& text, int ranks) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("--elastic {}: {}", text, why));
  };
  const auto number = [&](std::string_view word, int absent) {
    int value = absent;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
    if (!word.empty() && (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()))
      fail(fmt::format("'{}' is no number of ranks; write LEAST:MOST, for example 4:8", word));
    if (value < 1) fail("a run has at least 1 rank; write LEAST:MOST, for example 4:8");
    return value;
  };
  const std::size_t colon = text.find(':');
  const std::string_view whole = text;
  const RankRange range{
      .least = number(whole.substr(0, colon), 1),
      .most = colon == std::string::npos ? ranks : number(whole.substr(colon + 1), ranks)};
  if (range.least > range.most)
    fail(fmt::format("at least {} and at most {} ranks; nearest: {}:{}", range.least, range.most,
                     range.most, range.most));
  return range;
}

}  // namespace meshplan::cli

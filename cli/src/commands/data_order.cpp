#include "commands/data_order.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/context/context.hpp"
#include "program/plan/mesh.hpp"
#include "program/plan_file/plan_file.hpp"
#include "ranks/plan_to_run.hpp"
#include "reports/table.hpp"
#include "runtime/data/data.hpp"

namespace meshplan::cli {
namespace {

using reports::Align;
using reports::Table;
using runtime::TokenRange;

/// One place of a step: who reads it, and where its sequence lies; an empty one has none.
struct Read {
  int step = 0;
  int microbatch = 0;
  int dp = 0;
  std::int64_t place = 0;  // in the step
  std::optional<std::int64_t> epoch;
  std::optional<std::int64_t> sequence;
  std::vector<TokenRange> tokens;
};

std::vector<Read> reads_of(const runtime::Sampler& sampler, const program::Plan& plan,
                           const DataOrderOptions& options) {
  std::vector<Read> reads;
  for (int step = options.first_step; step < options.first_step + options.num_steps; ++step)
    for (int m = 0; m < plan.num_microbatches(); ++m)
      for (int dp = 0; dp < plan.parallel.dp; ++dp)
        for (int i = 0; i < plan.micro_batch_size; ++i) {
          const std::int64_t place = program::place_in_step(plan, m, dp, i);
          Read read{.step = step, .microbatch = m, .dp = dp, .place = place};
          if (place < plan.workload.global_batch_size) {
            const std::int64_t position = step * plan.workload.global_batch_size + place;
            read.epoch = position / sampler.num_sequences();
            read.sequence = sampler.sequence(position);
            read.tokens = sampler.tokens(*read.sequence);
          }
          reads.push_back(std::move(read));
        }
  return reads;
}

/// Ranks with this dp coordinate, ascending.
std::vector<int> ranks_of(const program::Plan& plan, int dp) {
  const program::Mesh mesh(plan.parallel, plan.rank_order);
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    if (mesh.coordinates(rank).dp == dp) ranks.push_back(rank);
  return ranks;
}

std::string text_of(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : "-";
}

Json json_of(const std::optional<std::int64_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}

std::string text_of(const std::vector<TokenRange>& ranges) {
  if (ranges.empty()) return "empty: counts in no loss";
  std::vector<std::string> texts;
  for (const TokenRange& range : ranges)
    texts.push_back(fmt::format("{}..{}", range.begin, range.end - 1));
  return fmt::format("{}", fmt::join(texts, " "));
}

Json json_of(const std::vector<Read>& reads, const program::Plan& plan) {
  Json list = Json::array();
  for (const Read& read : reads) {
    Json tokens = Json::array();
    for (const TokenRange& range : read.tokens) tokens.push_back({range.begin, range.end});
    list.push_back({{"step", read.step},
                    {"micro_batch", read.microbatch},
                    {"dp", read.dp},
                    {"ranks", ranks_of(plan, read.dp)},
                    {"place_in_step", read.place},
                    {"epoch", json_of(read.epoch)},
                    {"sequence", json_of(read.sequence)},
                    {"tokens", std::move(tokens)}});
  }
  return list;
}

/// What each context-parallel rank holds of every sequence; empty without context parallelism.
std::string context_text(const program::Plan& plan) {
  if (plan.parallel.cp == 1) return "";
  if (plan.workload.documents.packed)
    return fmt::format("cp = {}: each packed document is divided over the cp ranks\n",
                       plan.parallel.cp);
  std::string text;
  for (int cp = 0; cp < plan.parallel.cp; ++cp) {
    const program::ContextShard own =
        program::context_shard(plan.workload.seq_len, plan.parallel.cp, cp);
    text +=
        fmt::format("cp rank {} reads places {}..{} and {}..{} of each sequence\n", cp, own.first,
                    own.first + own.length / 2 - 1, own.second, own.second + own.length / 2 - 1);
  }
  return text;
}

void print_text(const std::vector<Read>& reads, const program::Plan& plan,
                const runtime::Sampler& sampler, const TokenRange& training,
                const runtime::TokenFile& file, const DataOrderOptions& options) {
  output("{}: {} tokens", file.path(), file.size());
  if (training.size() < file.size())
    output(", of which {}..{} are held out for evaluation", training.end, file.size() - 1);
  output("; {} sequences of {} tokens, in an order of their own in each epoch (seed {})\n",
         sampler.num_sequences(), plan.workload.seq_len, options.seed);
  output("a step reads {} sequences; the target of each token is the one behind it\n{}",
         plan.workload.global_batch_size, context_text(plan));
  Table table{.columns = {{"step"},
                          {"micro-batch"},
                          {"dp rank"},
                          {"ranks", Align::Left},
                          {"epoch"},
                          {"sequence"},
                          {"tokens of the file", Align::Left}}};
  for (const Read& read : reads)
    table.rows.push_back({std::to_string(read.step), std::to_string(read.microbatch),
                          std::to_string(read.dp),
                          fmt::format("{}", fmt::join(ranks_of(plan, read.dp), ",")),
                          text_of(read.epoch), text_of(read.sequence), text_of(read.tokens)});
  output("{}", reports::to_text(table));
}

}  // namespace

int print_data_order(const DataOrderOptions& options) {
  if (!options.data)
    throw ConfigError("--data is missing; for example meshplan data order plan.json --data a.u16");
  const auto require = [](const char* option, int value, int least) {
    if (value < least)
      throw ConfigError(fmt::format("{} {}: must be at least {}", option, value, least));
  };
  require("--first-step", options.first_step, 0);
  require("--steps", options.num_steps, 1);
  require("--eval-every", options.evaluate_every, 0);
  const program::Plan plan = plan_to_run(options.plan);
  const runtime::TokenFile file(*options.data);
  const TokenRange training = options.evaluate_every > 0
                                  ? runtime::hold_out_tail(file, plan).training
                                  : TokenRange{0, file.size()};
  const runtime::Sampler sampler(file, training, plan, static_cast<std::uint64_t>(options.seed));
  const std::vector<Read> reads = reads_of(sampler, plan, options);
  if (options.json)
    output("{}\n", Json{{"schema_version", 1},
                        {"data", file.path()},
                        {"seed", options.seed},
                        {"sequences", sampler.num_sequences()},
                        {"training_tokens", {training.begin, training.end}},
                        {"reads", json_of(reads, plan)}}
                       .dump(2));
  else
    print_text(reads, plan, sampler, training, file, options);
  return kDone;
}

}  // namespace meshplan::cli

#include "planner/scaling/strategies.hpp"

#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::planner {
namespace {

/// What a strategy says of an axis: 1, all of the ranks, or a part of them that is searched.
enum class Share { One, All, Part };

struct Axes {
  Share dp = Share::One, tp = Share::One, pp = Share::One, cp = Share::One, ep = Share::One;
  std::optional<bool> sp = false;
  std::optional<int> zero = 0;
};

void pin(Share share, int ranks, std::optional<int>& degree, std::optional<int>& at_least) {
  if (share == Share::Part)
    at_least = 2;
  else
    degree = share == Share::All ? ranks : 1;
}

Constraints pins_of(const Axes& axes, const SearchRequest& request) {
  Constraints pins = request.constraints;
  const int ranks = request.cluster.num_ranks();
  pin(axes.dp, ranks, pins.dp, pins.at_least.dp);
  pin(axes.tp, ranks, pins.tp, pins.at_least.tp);
  pin(axes.pp, ranks, pins.pp, pins.at_least.pp);
  pin(axes.cp, ranks, pins.cp, pins.at_least.cp);
  pin(axes.ep, ranks, pins.ep, pins.at_least.ep);
  pins.sp = axes.sp;
  pins.zero_stage = axes.zero;
  return pins;
}

StrategyRow row_of(const Strategy& strategy, const SearchRequest& request,
                   const ParallelFor& parallel_for) {
  StrategyRow row{.strategy = strategy, .figures = {}, .rule = {}, .message = {}};
  SearchRequest with = request;
  with.constraints = strategy.pins;
  with.top = 1;
  with.alternatives = false;
  // Here sequences are cut that a search would leave whole, too.
  if (strategy.pins.at_least.cp) with.space.fewest_context_tokens = 1;
  const auto figures = [&](const RankedPlan& ranked) {
    return figures_of(ranked.plan, with.cluster);
  };
  try {
    const SearchOutcome outcome = search(with, cost_model(with), parallel_for);
    if (const auto* found = std::get_if<SearchResult>(&outcome)) {
      row.figures = figures(found->ranked.front());
      row.fits = true;
      return row;
    }
    const auto& none = std::get<InfeasibleResult>(outcome);
    if (none.nearest_miss) {
      row.figures = figures(*none.nearest_miss);
    } else if (!none.rejections.empty()) {
      row.rule = none.rejections.front().rule;
      row.message = none.rejections.front().message;
    } else {
      row.rule = "ranks";
      row.message = fmt::format("no plan of {} ranks has these degrees", with.cluster.num_ranks());
    }
  } catch (const ConfigError& error) {
    row.rule = "ranks";
    row.message = error.what();
  }
  return row;
}

}  // namespace

std::vector<Strategy> textbook_strategies(const SearchRequest& request) {
  std::vector<Strategy> all;
  const auto add = [&](const char* name, const char* about, const Axes& axes) {
    all.push_back({name, about, pins_of(axes, request)});
  };
  using enum Share;
  add("dp", "every rank holds all of the model", {.dp = All});
  add("dp + ZeRO-1", "the optimizer state is divided", {.dp = All, .zero = 1});
  add("dp + ZeRO-2", "gradients, too", {.dp = All, .zero = 2});
  add("dp + ZeRO-3", "weights, too", {.dp = All, .zero = 3});
  add("tp", "every layer is cut over all ranks", {.tp = All});
  add("tp + sp", "and the tokens between the cuts", {.tp = All, .sp = true});
  add("pp", "every rank holds some layers", {.pp = All});
  add("cp", "every sequence is cut over all ranks", {.cp = All});
  add("tp x dp", "replicas of cut layers", {.dp = Part, .tp = Part});
  add("pp x dp", "replicas of pipelines", {.dp = Part, .pp = Part});
  add("tp x pp", "one pipeline of cut layers", {.tp = Part, .pp = Part});
  add("cp x dp", "replicas with cut sequences", {.dp = Part, .cp = Part});
  add("tp x pp x dp", "3-D", {.dp = Part, .tp = Part, .pp = Part});
  add("3-D + sp", "and sequence parallelism", {.dp = Part, .tp = Part, .pp = Part, .sp = true});
  add("3-D + sp + ZeRO-1", "and a divided optimizer",
      {.dp = Part, .tp = Part, .pp = Part, .sp = true, .zero = 1});
  if (request.model.moe) {
    add("ep x dp", "experts are divided over the replicas", {.dp = All, .ep = Part, .zero = {}});
    add("ep x pp x dp", "in a pipeline", {.dp = Part, .pp = Part, .ep = Part, .zero = {}});
    add("ep x tp x dp", "with cut layers",
        {.dp = Part, .tp = Part, .ep = Part, .sp = true, .zero = {}});
  }
  all.push_back({"any", "what `plan` finds", request.constraints});
  return all;
}

std::vector<StrategyRow> compare_strategies(const SearchRequest& request,
                                            const ParallelFor& parallel_for,
                                            const std::function<void(const std::string&)>& say) {
  std::vector<StrategyRow> rows;
  for (const Strategy& strategy : textbook_strategies(request)) {
    if (say) say(strategy.name);
    rows.push_back(row_of(strategy, request, parallel_for));
  }
  return rows;
}

std::optional<std::size_t> fastest_of(const std::vector<StrategyRow>& rows) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].fits &&
        (!best || rows[i].figures->step.step_time_s < rows[*best].figures->step.step_time_s))
      best = i;
  return best;
}

}  // namespace meshplan::planner

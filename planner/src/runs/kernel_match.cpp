// Three passes, the surest first; what one pass has taken the next ones leave alone. In each, the
// k-th launch that fits is the k-th operation that fits. Recompute counts as forward.
#include "planner/runs/kernel_match.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "runs/operation_list.hpp"

namespace meshplan::planner {
namespace {

using program::Phase;
using program::Span;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// Kernels that one operator of PyTorch launched.
struct KernelRun {
  std::vector<std::size_t> kernels;  // of the trace
  KernelKind kind = KernelKind::Other;
  bool backward = false;
  bool optimizer = false;
  std::size_t operation = kNone;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool communicates(KernelKind kind) {
  return kind == KernelKind::Collective || kind == KernelKind::Message;
}

/// FLOPs of a product by the shapes of its operator's inputs; absent where these do not tell.
std::optional<double> product_flops(const LaunchScope& scope) {
  const auto& dims = scope.input_dims;
  const std::size_t first =
      contains(scope.name, "addmm") || contains(scope.name, "baddbmm") ? 1 : 0;
  if (dims.size() < first + 2) return std::nullopt;
  const auto &a = dims[first], &b = dims[first + 1];
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  double rows = 1;
  for (std::size_t i = 0; i + 1 < a.size(); ++i) rows *= static_cast<double>(a[i]);
  const bool transposed = contains(scope.name, "linear");  // weights lie as (out, in)
  const std::int64_t inner = transposed ? b[b.size() - 1] : b[b.size() - 2];
  const std::int64_t columns = transposed ? b[b.size() - 2] : b[b.size() - 1];
  if (inner != a.back()) return std::nullopt;
  return 2 * rows * static_cast<double>(inner) * static_cast<double>(columns);
}

/// The kernels of one step.
class StepMatcher {
 public:
  StepMatcher(const KinetoTrace& trace, const std::vector<std::size_t>& kernels,
              const std::vector<ListedOperation>& operations)
      : trace_(trace), operations_(operations), taken_(operations.size(), false) {
    std::map<std::size_t, std::size_t> run_of_scope;
    for (const std::size_t i : kernels) {
      const KinetoKernel& kernel = trace.kernels[i];
      const std::size_t scope = innermost_operator(kernel);
      if (scope != kNone) {
        const auto [found, is_new] = run_of_scope.try_emplace(scope, runs_.size());
        if (!is_new) {
          add(runs_[found->second], i);
          continue;
        }
      }
      runs_.emplace_back();
      add(runs_.back(), i);
    }
  }

  void match(KernelMatch& result) {
    result.by_name += match_names();
    result.by_size += match_sizes();
    result.by_order += match_order();
  }

  const std::vector<KernelRun>& runs() const { return runs_; }

 private:
  std::size_t innermost_operator(const KinetoKernel& kernel) const {
    for (auto scope = kernel.scopes.rbegin(); scope != kernel.scopes.rend(); ++scope)
      if (!trace_.scopes[*scope].annotation) return *scope;
    return kNone;
  }

  /// A run is of the kind of what is no copy or elementwise help in it.
  void add(KernelRun& run, std::size_t i) {
    const KinetoKernel& kernel = trace_.kernels[i];
    const bool helps = kernel.kind == KernelKind::Elementwise || kernel.kind == KernelKind::Copy ||
                       kernel.kind == KernelKind::Other;
    if (run.kernels.empty() || !helps) run.kind = kernel.kind;
    run.kernels.push_back(i);
    for (const std::size_t scope : kernel.scopes) {
      const std::string_view name = trace_.scopes[scope].name;
      run.backward |= contains(name, "Backward") || contains(name, "autograd::engine");
      run.optimizer |= contains(name, "Optimizer.");
    }
  }

  int take(KernelRun& run, std::size_t operation) {
    run.operation = operation;
    return static_cast<int>(run.kernels.size());
  }

  /// The k-th range of a name is the k-th operation of that name.
  int match_names() {
    std::map<std::string, std::vector<std::size_t>, std::less<>> named;
    for (std::size_t o = 0; o < operations_.size(); ++o)
      named[operations_[o].span.name].push_back(o);
    std::map<std::string_view, std::map<std::size_t, std::size_t>> ranges;  // scope -> number
    int kernels = 0;
    for (KernelRun& run : runs_)
      for (const std::size_t scope : trace_.kernels[run.kernels.front()].scopes) {
        const std::string_view name = trace_.scopes[scope].name;
        const auto found = named.find(name);
        if (!trace_.scopes[scope].annotation || found == named.end()) continue;
        auto& numbers = ranges[name];
        const std::size_t number = numbers.try_emplace(scope, numbers.size()).first->second;
        if (number >= found->second.size() || run.operation != kNone) continue;
        taken_[found->second[number]] = true;
        kernels += take(run, found->second[number]);
      }
    return kernels;
  }

  /// Kind, backward, collective or direction, FLOPs or bytes.
  using SizeKey = std::tuple<KernelKind, bool, int, double>;

  static double rounded(double flops) { return std::round(std::log(flops) * 1e4); }

  std::optional<SizeKey> size_of(const KernelRun& run) const {
    const KinetoKernel& kernel = trace_.kernels[run.kernels.front()];
    if (run.kind == KernelKind::Product) {
      const std::size_t scope = innermost_operator(kernel);
      if (scope == kNone) return std::nullopt;
      const auto flops = product_flops(trace_.scopes[scope]);
      if (!flops || *flops <= 0) return std::nullopt;
      return SizeKey{run.kind, run.backward, 0, rounded(*flops)};
    }
    if (!communicates(run.kind) || !kernel.message_bytes) return std::nullopt;
    const bool collective = run.kind == KernelKind::Collective;
    if (collective ? !kernel.collective : !kernel.sends) return std::nullopt;
    return SizeKey{run.kind, false,
                   collective ? static_cast<int>(*kernel.collective) : (*kernel.sends ? 1 : 0),
                   static_cast<double>(*kernel.message_bytes)};
  }

  static std::optional<SizeKey> size_of(const ListedOperation& operation) {
    if (operation.kind == KernelKind::Product && operation.span.flops > 0)
      return SizeKey{operation.kind, operation.backward, 0, rounded(operation.span.flops)};
    if (operation.kind == KernelKind::Collective)
      return SizeKey{operation.kind, false, static_cast<int>(*operation.collective),
                     static_cast<double>(operation.message_bytes)};
    if (operation.kind == KernelKind::Message)
      return SizeKey{operation.kind, false, *operation.sends ? 1 : 0,
                     static_cast<double>(operation.message_bytes)};
    return std::nullopt;
  }

  int match_sizes() {
    std::map<SizeKey, std::vector<std::size_t>> sized;  // the last operation first
    for (std::size_t o = operations_.size(); o-- > 0;)
      if (const auto size = size_of(operations_[o]); size && !taken_[o]) sized[*size].push_back(o);
    int kernels = 0;
    for (KernelRun& run : runs_) {
      if (run.operation != kNone) continue;
      const auto size = size_of(run);
      const auto found = size ? sized.find(*size) : sized.end();
      if (found == sized.end() || found->second.empty()) continue;
      taken_[found->second.back()] = true;
      kernels += take(run, found->second.back());
      found->second.pop_back();
    }
    return kernels;
  }

  static bool is_ordered(KernelKind kind) {
    return kind == KernelKind::Product || kind == KernelKind::Attention ||
           kind == KernelKind::Norm || kind == KernelKind::Loss || kind == KernelKind::Embedding ||
           kind == KernelKind::Optimizer || communicates(kind);
  }

  /// Of kinds of which both have equally many.
  int match_order() {
    std::map<std::pair<KernelKind, bool>, std::vector<std::size_t>> ours, theirs;
    for (std::size_t o = 0; o < operations_.size(); ++o)
      if (!taken_[o] && is_ordered(operations_[o].kind))
        ours[{operations_[o].kind, operations_[o].backward}].push_back(o);
    for (std::size_t r = 0; r < runs_.size(); ++r)
      if (runs_[r].operation == kNone && is_ordered(runs_[r].kind))
        theirs[{runs_[r].kind, runs_[r].backward}].push_back(r);
    int kernels = 0;
    for (const auto& [kind, runs] : theirs) {
      const auto& operations = ours[kind];
      if (operations.size() != runs.size()) continue;
      for (std::size_t k = 0; k < runs.size(); ++k) {
        taken_[operations[k]] = true;
        kernels += take(runs_[runs[k]], operations[k]);
      }
    }
    return kernels;
  }

  const KinetoTrace& trace_;
  const std::vector<ListedOperation>& operations_;
  std::vector<bool> taken_;
  std::vector<KernelRun> runs_;  // in the order of their first launches
};

/// The group whose size tells it, where nothing else does.
std::string group_of(const KinetoKernel& kernel, const program::ParallelConfig& parallel) {
  if (kernel.kind == KernelKind::Message) return parallel.pp > 1 ? "pp" : "cp";
  if (kernel.group_size == parallel.tp && parallel.tp > 1) return "tp";
  if (kernel.group_size == parallel.ep && parallel.ep > 1) return "ep";
  return "dp-cp";
}

program::Lane lane_of(const std::string& group) {
  if (group == "tp") return program::Lane::Tp;
  if (group == "ep") return program::Lane::Ep;
  if (group == "cp") return program::Lane::Cp;
  if (group == "pp") return program::Lane::PpSendForward;
  return program::Lane::Dp;
}

Phase phase_of(const KernelRun& run) {
  if (run.optimizer || run.kind == KernelKind::Optimizer) return Phase::Optimizer;
  return run.backward ? Phase::InputGrad : Phase::Forward;
}

Span unmatched_span(const KinetoKernel& kernel, const KernelRun& run, std::size_t number,
                    const program::Plan& plan) {
  Span span{.phase = phase_of(run),
            .name = std::string(kernel.name),
            .id = number,
            .group = "",
            .peer = {}};
  if (!communicates(kernel.kind)) return span;
  span.group = group_of(kernel, plan.parallel);
  span.lane = lane_of(span.group);
  span.bytes = kernel.message_bytes.value_or(0);
  return span;
}

void check_job(const KinetoTrace& trace, const std::string& file, const program::Plan& plan,
               int rank) {
  const int world = plan.parallel.world_size();
  if (trace.world_size && *trace.world_size != world)
    throw ConfigError(fmt::format("{}: distributedInfo.world_size: {}, expected {} as in the plan",
                                  file, *trace.world_size, world));
  if (rank < 0 || rank >= world)
    throw ConfigError(fmt::format(
        "{}: distributedInfo.rank: {}, expected one of the plan's 0 to {}", file, rank, world - 1));
}

/// Puts the steps of a trace together.
class RunBuilder {
 public:
  RunBuilder(const KinetoTrace& kineto, const std::string& file, const program::Plan& plan,
             int rank)
      : kineto_(kineto),
        file_(file),
        plan_(plan),
        rank_(rank),
        operations_(list_operations(plan, rank)),
        steps_(whole_steps(kineto)) {
    run_.trace = {.measured = true,
                  .source = "Kineto",
                  .plan = plan,
                  .world_size = plan.parallel.world_size()};
  }

  /// @throws ConfigError for steps that take too long to match, or overlap without end
  MeasuredRun build() {
    constexpr std::size_t kMostOperations = std::size_t{1} << 26;
    if (steps_.size() > kMostOperations / std::max<std::size_t>(operations_.size(), 1))
      throw ConfigError(fmt::format(
          "{}: traceEvents: {} steps of {} operations of the plan each, more than {} in all, the "
          "limit; profile fewer steps",
          file_, steps_.size(), operations_.size(), kMostOperations));
    for (std::size_t s = 0; s < steps_.size(); ++s) add_step(s);
    run_.match.outside = static_cast<int>(kineto_.kernels.size()) - run_.match.kernels;
    for (auto& [key, left] : unmatched_) run_.match.unmatched.push_back(std::move(left));
    std::ranges::stable_sort(run_.match.unmatched, std::ranges::greater{},
                             &UnmatchedKernel::seconds);
    return std::move(run_);
  }

 private:
  std::vector<std::size_t> kernels_of(const ProfiledStep& step) const {
    const auto at = [&](double time_s) {  // they are in the order of their launches
      const auto found =
          std::ranges::lower_bound(kineto_.kernels, time_s, {}, &KinetoKernel::launched_s);
      return static_cast<std::size_t>(found - kineto_.kernels.begin());
    };
    std::vector<std::size_t> kernels(std::max(at(step.end_s), at(step.start_s)) - at(step.start_s));
    std::iota(kernels.begin(), kernels.end(), at(step.start_s));
    return kernels;
  }

  void add_step(std::size_t s) {
    run_.trace.step_times_s.push_back(steps_[s].end_s - steps_[s].start_s);
    const std::vector<std::size_t> kernels = kernels_of(steps_[s]);
    if (kernels.empty()) return;
    run_.match.kernels += static_cast<int>(kernels.size());
    if (static_cast<std::size_t>(run_.match.kernels) > kineto_.kernels.size())
      throw ConfigError(fmt::format(
          "{}: traceEvents: ProfilerStep#{} overlaps others, expected steps one after another",
          file_, steps_[s].number));
    double start = kineto_.kernels[kernels.front()].start_s;
    for (const std::size_t i : kernels) start = std::min(start, kineto_.kernels[i].start_s);
    StepMatcher matcher(kineto_, kernels, operations_);
    matcher.match(run_.match);
    for (const KernelRun& launched : matcher.runs())
      for (const std::size_t i : launched.kernels) add_kernel(launched, i, s, start);
  }

  void add_kernel(const KernelRun& launched, std::size_t i, std::size_t step, double start) {
    const KinetoKernel& kernel = kineto_.kernels[i];
    const bool matched = launched.operation != kNone;
    Span span =
        matched ? operations_[launched.operation].span : unmatched_span(kernel, launched, i, plan_);
    span.rank = rank_;
    span.step = static_cast<int>(step);
    span.start_s = kernel.start_s - start;
    span.end_s = kernel.end_s - start;
    run_.trace.spans.push_back(std::move(span));
    const double seconds = (kernel.end_s - kernel.start_s) / static_cast<double>(steps_.size());
    run_.match.seconds += seconds;
    if (matched)
      run_.match.matched_s += seconds;
    else
      add_unmatched(kernel, seconds);
  }

  void add_unmatched(const KinetoKernel& kernel, double seconds) {
    UnmatchedKernel& left = unmatched_[{std::string(kernel.name), kernel.kind}];
    left.name = kernel.name;
    left.kind = kernel.kind;
    left.seconds += seconds;
    ++left.times;
  }

  const KinetoTrace& kineto_;
  const std::string& file_;
  const program::Plan& plan_;
  int rank_;
  std::vector<ListedOperation> operations_;
  std::vector<ProfiledStep> steps_;
  MeasuredRun run_;
  std::map<std::pair<std::string, KernelKind>, UnmatchedKernel> unmatched_;
};

}  // namespace

MeasuredRun match_kernels(const KinetoTrace& kineto, const std::string& file,
                          const program::Plan& plan, int default_rank) {
  const int rank = kineto.rank.value_or(default_rank);
  check_job(kineto, file, plan, rank);
  return RunBuilder(kineto, file, plan, rank).build();
}

}  // namespace meshplan::planner

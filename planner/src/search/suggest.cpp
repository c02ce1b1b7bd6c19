#include <fmt/format.h>

#include "core/error.hpp"
#include "planner/search/search.hpp"

namespace meshplan::planner {
namespace {

class Suggester {
 public:
  Suggester(const SearchRequest& request, const ParallelFor& parallel_for)
      : request_(request), parallel_for_(parallel_for) {
    request_.top = 1;
    request_.alternatives = false;
  }

  std::vector<Suggestion> run() {
    const Constraints& pins = request_.constraints;
    if (!pins.offload_optimizer && request_.cluster.device.kind == sim::DeviceKind::Gpu)
      with("--offload-optimizer", [](SearchRequest& r) { r.constraints.offload_optimizer = true; });
    release("--tp", &Constraints::tp);
    release("--pp", &Constraints::pp);
    release("--dp", &Constraints::dp);
    release("--cp", &Constraints::cp);
    release("--ep", &Constraints::ep);
    release("--zero", &Constraints::zero_stage);
    release("--micro-batch", &Constraints::micro_batch_size);
    if (recompute_is_pinned(pins))
      with("without --recompute", [](SearchRequest& r) {
        r.constraints.recompute.reset();
        r.constraints.recompute_layers.reset();
        r.constraints.recompute_modules = {};
      });
    more_ranks();
    return std::move(found_);
  }

 private:
  template <class Change>
  bool with(std::string words, Change change) {
    constexpr std::size_t kMostCandidates = 30'000;
    try {
      SearchRequest request = request_;
      change(request);
      const Ranks ranks{request.cluster.num_ranks(), request.cluster.devices_per_node};
      if (enumerate(request.model, request.workload, ranks, request.constraints).size() >
          kMostCandidates)
        return false;
      const SearchOutcome outcome =
          search(request, cost_model(request), parallel_for_, /*progress=*/{});
      const auto* result = std::get_if<SearchResult>(&outcome);
      if (result == nullptr) return false;
      found_.push_back({std::move(words), result->ranked.front()});
      return true;
    } catch (const ConfigError&) {  // the change makes the pins, or the cluster, impossible
      return false;
    }
  }

  void release(const char* flag, std::optional<int> Constraints::*pin) {
    const std::optional<int> value = request_.constraints.*pin;
    if (value)
      with(fmt::format("without {} {}", flag, *value),
           [&](SearchRequest& r) { (r.constraints.*pin).reset(); });
  }

  void more_ranks() {
    constexpr int kMostTimes = 64;
    const int ranks = request_.cluster.num_ranks();
    for (int times = 2; times <= kMostTimes; times *= 2) {
      const std::int64_t wanted = std::int64_t{ranks} * times;
      if (wanted > kMostSearchedRanks) return;
      const bool gpus = request_.cluster.device.kind == sim::DeviceKind::Gpu;
      if (with(fmt::format("{} {}", wanted, gpus ? "GPUs" : "ranks"), [&](SearchRequest& r) {
            r.cluster = sim::with_ranks(r.cluster, static_cast<int>(wanted));
          }))
        return;
    }
  }

  SearchRequest request_;
  const ParallelFor& parallel_for_;
  std::vector<Suggestion> found_;
};

}  // namespace

std::vector<Suggestion> suggest(const SearchRequest& request, const ParallelFor& parallel_for) {
  return Suggester(request, parallel_for).run();
}

}  // namespace meshplan::planner

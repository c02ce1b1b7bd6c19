// Traces as PyTorch's profiler writes them, made by hand.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace meshplan::planner::test {

/// Times in microseconds. The thread 1 of the host launches, the device's streams run.
class KinetoText {
 public:
  using Json = nlohmann::ordered_json;

  void scope(const std::string& category, const std::string& name, double ts, double dur,
             Json dims = {}) {
    Json args = Json::object();
    if (!dims.is_null()) args["Input Dims"] = std::move(dims);
    event(category, name, 4242, 1, ts, dur, std::move(args));
  }
  /// @param launched  when the host launches it; below 0: no launch is recorded
  void kernel(const std::string& name, double launched, double ts, double dur,
              Json args = Json::object(), int stream = 7) {
    args["stream"] = stream;
    args["correlation"] = ++correlation_;
    if (launched >= 0)
      event("cuda_runtime", "cudaLaunchKernel", 4242, 1, launched, 1,
            {{"correlation", correlation_}});
    event("kernel", name, 0, stream, ts, dur, std::move(args));
  }

  Json json() const {
    return {{"schemaVersion", 1},
            {"distributedInfo", {{"backend", "nccl"}, {"rank", rank}, {"world_size", world_size}}},
            {"traceEvents", events_}};
  }
  std::string text() const { return json().dump(); }

  int rank = 0;
  int world_size = 1;

 private:
  void event(const std::string& category, const std::string& name, int pid, int tid, double ts,
             double dur, Json args) {
    events_.push_back({{"ph", "X"},
                       {"cat", category},
                       {"name", name},
                       {"pid", pid},
                       {"tid", tid},
                       {"ts", 1682725898082228.0 + ts},
                       {"dur", dur},
                       {"args", std::move(args)}});
  }

  Json events_ = Json::array({{{"ph", "M"}, {"name", "process_name"}, {"pid", 0}}});
  int correlation_ = 0;
};

}  // namespace meshplan::planner::test

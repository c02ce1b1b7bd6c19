// What PyTorch's profiler (Kineto) saw of one rank: kernels on the device, and what launched them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace meshplan::planner {

/// What a kernel does, by its name.
enum class KernelKind {
  Product,  // matrix products
  Attention,
  Norm,
  Loss,  // softmax and cross entropy
  Embedding,
  Elementwise,
  Optimizer,
  Collective,
  Message,  // send and receive
  Copy,     // and fill
  Other
};
std::string_view name_of(KernelKind kind);
KernelKind kind_of_kernel(std::string_view name);

/// A range of a thread of the host: an operator of PyTorch, or one that the user named
/// (record_function, NVTX).
struct LaunchScope {
  std::string name;
  bool annotation = false;                            // named by the user
  std::vector<std::vector<std::int64_t>> input_dims;  // shapes of an operator's inputs, if recorded
};

struct KinetoKernel {
  std::string name;
  KernelKind kind = KernelKind::Other;
  std::int64_t stream = 0;
  double start_s = 0;  // on the trace's clock
  double end_s = 0;
  double launched_s = 0;                          // start_s where no launch is known
  std::vector<std::size_t> scopes;                // around its launch, the outermost first
  std::optional<program::Collective> collective;  // of a Collective, if it is one that we have
  std::optional<std::int64_t> message_bytes;      // of communication: as program::message_bytes
  std::optional<bool> sends;                      // of a Message: does it send? Else it receives
  std::optional<int> group_size;                  // of communication: ranks that take part
};

struct ProfiledStep {
  std::int64_t number = 0;
  double start_s = 0;
  double end_s = 0;
};

struct KinetoTrace {
  std::optional<int> rank;  // of distributedInfo, as is world_size
  std::optional<int> world_size;
  std::vector<ProfiledStep> steps;  // ProfilerStep#N; empty: the trace names none
  std::vector<LaunchScope> scopes;
  std::vector<KinetoKernel> kernels;  // in the order of their launches
};

/// Whole steps: those of the trace, or all of it as one.
std::vector<ProfiledStep> whole_steps(const KinetoTrace& trace);

/// @throws ConfigError naming file, event and value; also for a trace without kernels
KinetoTrace parse_kineto_trace(std::string_view text, const std::string& file);

}  // namespace meshplan::planner

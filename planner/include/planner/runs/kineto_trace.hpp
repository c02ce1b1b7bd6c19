// What PyTorch's profiler (Kineto) saw of one rank: kernels on the device, and what launched them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_blocks.hpp"
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

/// The names and shapes of a trace: each is held once, however many events have it.
class KinetoTexts;

/// A range of a thread of the host: an operator of PyTorch, or one that the user named
/// (record_function, NVTX).
struct LaunchScope {
  std::string_view name;
  bool annotation = false;                                // named by the user
  std::span<const std::vector<std::int64_t>> input_dims;  // shapes of its inputs, if recorded
};

struct KinetoKernel {
  std::string_view name;
  KernelKind kind = KernelKind::Other;
  std::int64_t stream = 0;
  double start_s = 0;  // on the trace's clock
  double end_s = 0;
  double launched_s = 0;                          // start_s where no launch is known
  std::vector<std::uint32_t> scopes;              // around its launch, the outermost first
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
  std::vector<KinetoKernel> kernels;         // in the order of their launches
  std::shared_ptr<const KinetoTexts> texts;  // that scopes and kernels show
};

/// The most that is kept of a trace.
constexpr std::size_t kMostKernels = std::size_t{1} << 19;
constexpr std::size_t kMostLaunches = std::size_t{1} << 21;
constexpr std::size_t kMostScopes = std::size_t{1} << 21;
constexpr std::size_t kMostProfiledSteps = std::size_t{1} << 14;
constexpr std::size_t kMostTextsBytes = std::size_t{1} << 27;  // of different names and shapes

/// Whole steps: those of the trace, or all of it as one.
std::vector<ProfiledStep> whole_steps(const KinetoTrace& trace);

/// Holds no more of the text than an event, and of the events what is kept.
/// @throws ConfigError naming file, event and value; also for a trace without kernels, or with more
/// than is kept
KinetoTrace parse_kineto_trace(const TextBlocks& text, const std::string& file);
KinetoTrace parse_kineto_trace(std::string_view text, const std::string& file);

}  // namespace meshplan::planner

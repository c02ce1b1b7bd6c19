#include "attention/cudnn_attention.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <fmt/format.h>
#include <limits>
#include <map>

#include "attention/attention.hpp"
#include "attention/attention_parts.hpp"
#include "attention/cudnn_attention_graph.hpp"
#include "device/digest.hpp"
#include "library/cudnn_plan.hpp"
#include "library/library_checks.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::int64_t kAlignment = 256;

bool are_aligned(std::initializer_list<const void*> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const void* operand) {
    return reinterpret_cast<std::uintptr_t>(operand) % 16 == 0;
  });
}
constexpr const char* kUnaligned = "its operands are not aligned to 16 bytes";
constexpr const char* kNotRepeated = "its gradients differ from run to run";
constexpr int kRuns = 8;  // of a kernel that is to repeat its bits

/// What a plan depends on.
struct Key {
  bool backward = false;
  bool any_order = false;
  DType dtype = DType::BF16;
  std::int64_t sequences = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool causal = false, key_lengths = false, key_ranges = false, sinks = false;
  std::int64_t offset = 0, window = 0;
  float scale = 1.0F;
  float softcap = 0.0F;
  std::int64_t q_stride = 0, kv_stride = 0, o_stride = 0, dq_stride = 0, dkv_stride = 0;
  auto operator<=>(const Key&) const = default;
};
template <class Op>
Key key_of(const Op& op) {
  const AttentionShape& s = op.shape;
  return {.dtype = op.dtype,
          .sequences = s.num_sequences,
          .queries = s.query_len,
          .keys = s.key_len,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_size = s.head_size,
          .causal = s.causal,
          .key_lengths = op.key_lengths != nullptr,
          .key_ranges = op.key_ranges != nullptr,
          .offset = s.query_offset,
          .window = s.window,
          .scale = s.scale,
          .softcap = s.softcap,
          .q_stride = op.q_stride,
          .kv_stride = op.kv_stride,
          .o_stride = op.o_stride};
}
Key key(const AttentionForward& op) {
  Key result = key_of(op);
  result.sinks = op.sinks != nullptr;
  return result;
}
Key key(const AttentionBackward& op) {
  Key result = key_of(op);
  result.backward = true;
  result.any_order = !op.choice.deterministic;
  result.dq_stride = op.dq_stride;
  result.dkv_stride = op.dkv_stride;
  return result;
}

std::unique_ptr<AttentionGraph> graph_of(const AttentionForward& op) {
  return attention_graph(op);
}
std::unique_ptr<AttentionGraph> graph_of(const AttentionBackward& op) {
  return attention_graph(
      op, op.choice.deterministic ? QueryGradientSum::FromScores : QueryGradientSum::InFloat32);
}

/// cuDNN takes inputs as mutable pointers and does not write to them.
void* mutable_address(const void* data) {
  return const_cast<void*>(data);
}

constexpr std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
/// Bytes of one fp32 number for each row of each head.
std::int64_t row_bytes(const AttentionShape& s) {
  return round_up(s.num_sequences * s.heads * s.query_len * size_of(DType::F32));
}

}  // namespace

class CudnnAttention::Impl {
 public:
  struct Planned {
    std::unique_ptr<AttentionGraph> graph;
    CudnnPlan plan;
    std::string refusal;
    bool repeats = false;  // seen to, on this device
  };

  template <class Op>
  Planned& planned(const Op& op) {
    const auto found = plans_.find(key(op));
    if (found != plans_.end()) return found->second;
    Planned result;
    result.refusal = version_refusal(cudnnGetVersion());
    if (result.refusal.empty()) result.refusal = graph_refusal(op);
    if (result.refusal.empty()) {
      try {
        result.graph = graph_of(op);
        result.plan = plan_graph({.handle = handle()}, result.graph->graph, 0, result.refusal);
      } catch (const CudaError& error) {  // what cuDNN cannot describe it cannot compute
        result.refusal = error.what();
      }
    }
    return plans_.emplace(key(op), std::move(result)).first->second;
  }

  /// The next engine takes the plan's place; none: the operation is refused.
  void give_up_engine(Planned& planned) {
    std::string refusal;
    planned.plan =
        plan_graph({.handle = handle()}, planned.graph->graph, planned.plan.engine + 1, refusal);
    if (planned.plan.plan.get() == nullptr) planned.refusal = kNotRepeated;
  }

  void run(const Context& context, Planned& planned,
           std::vector<std::pair<std::int64_t, void*>> operands, void* workspace) {
    for (const auto& constant : planned.graph->graph.constants()) operands.push_back(constant);
    check(cudnnSetStream(handle(), context.stream), "cudnnSetStream");
    execute(handle(), planned.plan, operands, workspace);
  }

 private:
  cudnnHandle_t handle() {
    if (handle_.get() == nullptr) {
      cudnnHandle_t handle = nullptr;
      check(cudnnCreate(&handle), "cudnnCreate");
      handle_ = CudnnHandle(handle);
    }
    return handle_.get();
  }

  CudnnHandle handle_;
  std::map<Key, Planned> plans_;
};

namespace {

/// Bytes of the sum in fp32, if the graph keeps one.
std::int64_t query_sum_bytes(const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  return op.choice.deterministic ? 0
                                 : round_up(s.num_sequences * s.query_len * s.heads * s.head_size *
                                            size_of(DType::F32));
}

std::int64_t bytes_beside(const AttentionForward& op) {
  return kAlignment + row_bytes(op.shape);
}
std::int64_t bytes_beside(const AttentionBackward& op) {
  return std::max(kDigestScratchBytes, kAlignment + 2 * row_bytes(op.shape) + query_sum_bytes(op));
}

std::string too_large(const AttentionChoice& choice, std::int64_t bytes) {
  if (!choice.scratch_bytes || bytes <= *choice.scratch_bytes) return "";
  return fmt::format("cuDNN wants {} bytes of workspace, the plan has {}", bytes,
                     *choice.scratch_bytes);
}

/// What a backward pass writes.
std::array<Bits, 3> results_of(const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const Bits dk{op.dk, s.num_sequences * s.key_len, std::int64_t{s.kv_heads} * s.head_size,
                op.dkv_stride};
  Bits dv = dk;
  dv.data = op.dv;
  return {
      Bits{op.dq, s.num_sequences * s.query_len, std::int64_t{s.heads} * s.head_size, op.dq_stride},
      dk, dv};
}

template <class Op>
std::int64_t stride_of(const Op& op) {
  return op.lse_stride > 0 ? op.lse_stride : op.shape.query_len;
}
/// As cuDNN takes statistics. It accepts other strides; its frontend's tests do not trust them
/// (test/python/sdpa/random_config.py), and nor do we. Some queries of a sequence lie so.
template <class Op>
bool is_dense(const Op& op) {
  return stride_of(op) == op.shape.query_len && are_aligned({op.lse});
}

struct HeadStatistics {
  const void* data = nullptr;
  std::int64_t stride = 0;  // from head to head
};
void copy_heads(const Context& context, const AttentionShape& shape, HeadStatistics from,
                HeadStatistics to) {
  constexpr std::size_t kBytes = sizeof(float);
  check(cudaMemcpy2DAsync(mutable_address(to.data), static_cast<std::size_t>(to.stride) * kBytes,
                          from.data, static_cast<std::size_t>(from.stride) * kBytes,
                          static_cast<std::size_t>(shape.query_len) * kBytes,
                          static_cast<std::size_t>(shape.num_sequences * shape.heads),
                          cudaMemcpyDeviceToDevice, context.stream),
        "cudaMemcpy2DAsync");
}

std::byte* aligned_scratch(const Context& context) {
  const auto base = reinterpret_cast<std::uintptr_t>(context.scratch.data());
  return context.scratch.data() + (kAlignment - base % kAlignment) % kAlignment;
}

}  // namespace

CudnnAttention::CudnnAttention(std::function<void(const std::string&)> log)
    : log_(std::move(log)), impl_(std::make_unique<Impl>()) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::refusal(const Context& context, const AttentionForward& op) {
  if (!are_aligned({op.q, op.k, op.v, op.o})) return kUnaligned;
  const std::string& refusal = impl_->planned(op).refusal;
  return refusal.empty() ? too_large(op.choice, scratch_bytes(context, op)) : refusal;
}
std::string CudnnAttention::refusal(const Context& context, const AttentionBackward& op) {
  if (!are_aligned({op.q, op.k, op.v, op.o, op.output_grad, op.dq, op.dk, op.dv}))
    return kUnaligned;
  if (!impl_->planned(op).refusal.empty()) return impl_->planned(op).refusal;
  const std::vector<AttentionBackward> parts = parts_that_fit(op);
  for (const AttentionBackward& part : {parts.front(), parts.back()})
    if (!impl_->planned(part).refusal.empty()) return impl_->planned(part).refusal;
  return too_large(op.choice, scratch_bytes(context, op));
}

std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/, const AttentionForward& op) {
  return bytes_beside(op) + impl_->planned(op).plan.workspace_bytes;
}
std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/,
                                           const AttentionBackward& op) {
  return part_bytes(parts_that_fit(op).front());
}

std::int64_t CudnnAttention::part_bytes(const AttentionBackward& part) {
  return bytes_beside(part) + impl_->planned(part).plan.workspace_bytes;
}

/// All of it at once if the scratch that was planned is enough, else in halves of sequences, then
/// of heads, until it is, or one head is left.
std::vector<AttentionBackward> CudnnAttention::parts_that_fit(const AttentionBackward& op) {
  AttentionPart first = whole(op);
  const std::int64_t most =
      op.choice.scratch_bytes.value_or(std::numeric_limits<std::int64_t>::max());
  while (first.sequences * first.kv_heads > 1 && part_bytes(part_of(op, first)) > most)
    first = halved(first);
  return parts_of(op, first);
}

void CudnnAttention::run(const Context& context, const AttentionForward& op) {
  require_scratch(context, scratch_bytes(context, op));
  Impl::Planned& planned = impl_->planned(op);
  const AttentionGraph& ids = *planned.graph;
  std::byte* scratch = aligned_scratch(context);
  const bool in_place = is_dense(op);
  void* stats = in_place ? static_cast<void*>(op.lse) : scratch;
  impl_->run(context, planned,
             {{ids.q, mutable_address(op.q)},
              {ids.k, mutable_address(op.k)},
              {ids.v, mutable_address(op.v)},
              {ids.o, op.o},
              {ids.stats, stats}},
             scratch + row_bytes(op.shape));
  if (!in_place)
    copy_heads(context, op.shape, {stats, op.shape.query_len}, {op.lse, stride_of(op)});
}

void CudnnAttention::enqueue(const Context& context, const AttentionBackward& op) {
  require_scratch(context, part_bytes(op));
  Impl::Planned& planned = impl_->planned(op);
  const AttentionGraph& ids = *planned.graph;
  std::byte* scratch = aligned_scratch(context);
  std::byte* delta = scratch + row_bytes(op.shape);
  std::byte* query_sum = delta + row_bytes(op.shape);
  void* stats = mutable_address(op.lse);
  if (!is_dense(op)) {
    stats = scratch;
    copy_heads(context, op.shape, {op.lse, stride_of(op)}, {stats, op.shape.query_len});
  }
  std::vector<std::pair<std::int64_t, void*>> operands = {
      {ids.q, mutable_address(op.q)},
      {ids.k, mutable_address(op.k)},
      {ids.v, mutable_address(op.v)},
      {ids.o, mutable_address(op.o)},
      {ids.stats, stats},
      {ids.output_grad, mutable_address(op.output_grad)},
      {ids.dq, op.dq},
      {ids.dk, op.dk},
      {ids.dv, op.dv},
      {ids.delta, delta}};
  if (ids.dq_sum != 0) operands.emplace_back(ids.dq_sum, query_sum);
  impl_->run(context, planned, std::move(operands), query_sum + query_sum_bytes(op));
}

/// The run that has just been enqueued, and others. @return the first that differed; 0 = none
int CudnnAttention::first_difference(const Context& context, const AttentionBackward& op) {
  const std::array<Bits, 3> results = results_of(op);
  const std::uint64_t first = digest_of(context, results);
  if (first == 0) return 0;  // says nothing; the next call will
  for (int run = 2; run <= kRuns; ++run) {
    enqueue(context, op);
    if (digest_of(context, results) != first) return run;
  }
  impl_->planned(op).repeats = true;
  return 0;
}

bool CudnnAttention::run(const Context& context, const AttentionBackward& op) {
  for (const AttentionBackward& part : parts_that_fit(op))
    if (!run_part(context, part)) return false;
  return true;
}

bool CudnnAttention::run_part(const Context& context, const AttentionBackward& op) {
  Impl::Planned& planned = impl_->planned(op);
  while (planned.refusal.empty()) {
    enqueue(context, op);
    if (!op.choice.deterministic || planned.repeats || is_capturing(context)) return true;
    const int different = first_difference(context, op);
    if (different == 0) return true;
    const std::size_t engine = planned.plan.engine;
    impl_->give_up_engine(planned);
    if (part_bytes(op) > std::ssize(context.scratch)) planned.refusal = kNotRepeated;
    if (log_)
      log_(fmt::format("{}: cuDNN's engine {} gave other gradients in run {}; {}", describe(op),
                       engine, different,
                       planned.refusal.empty() ? "the next takes its place" : "there is no other"));
  }
  return false;
}

}  // namespace meshplan::kernels::cuda

#include "cudnn_attention.hpp"

#include <algorithm>
#include <compare>
#include <map>

#include "attention_rows.hpp"
#include "cudnn_attention_graph.hpp"
#include "library_checks.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::int64_t kAlignment = 256;

bool are_aligned(std::initializer_list<const void*> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const void* operand) {
    return reinterpret_cast<std::uintptr_t>(operand) % 16 == 0;
  });
}
constexpr const char* kUnaligned = "its operands are not aligned to 16 bytes";

/// What a plan depends on.
struct Key {
  bool backward = false;
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
  result.dq_stride = op.dq_stride;
  result.dkv_stride = op.dkv_stride;
  return result;
}

/// cuDNN takes inputs as mutable pointers and does not write to them.
void* mutable_address(const void* data) {
  return const_cast<void*>(data);
}

constexpr std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
/// Of one fp32 number for each row of each head.
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
        result.graph = attention_graph(op);
        result.plan = plan_graph({.handle = handle()}, result.graph->graph, result.refusal);
      } catch (const CudaError& error) {  // what cuDNN cannot describe it cannot compute
        result.refusal = error.what();
      }
    }
    return plans_.emplace(key(op), std::move(result)).first->second;
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

CudnnAttention::CudnnAttention() : impl_(std::make_unique<Impl>()) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::refusal(const Context& /*context*/, const AttentionForward& op) {
  if (!are_aligned({op.q, op.k, op.v, op.o})) return kUnaligned;
  return impl_->planned(op).refusal;
}
std::string CudnnAttention::refusal(const Context& /*context*/, const AttentionBackward& op) {
  if (!are_aligned({op.q, op.k, op.v, op.o, op.output_grad, op.dq, op.dk, op.dv}))
    return kUnaligned;
  return impl_->planned(op).refusal;
}

std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/, const AttentionForward& op) {
  return kAlignment + row_bytes(op.shape) + impl_->planned(op).plan.workspace_bytes;
}
std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/,
                                           const AttentionBackward& op) {
  return kAlignment + 2 * row_bytes(op.shape) + impl_->planned(op).plan.workspace_bytes;
}

void CudnnAttention::run(const Context& context, const AttentionForward& op) {
  require_scratch(context, scratch_bytes(context, op));
  Impl::Planned& planned = impl_->planned(op);
  const AttentionGraph& ids = *planned.graph;
  const auto base = reinterpret_cast<std::uintptr_t>(context.scratch.data());
  std::byte* stats = context.scratch.data() + (kAlignment - base % kAlignment) % kAlignment;
  impl_->run(context, planned,
             {{ids.q, mutable_address(op.q)},
              {ids.k, mutable_address(op.k)},
              {ids.v, mutable_address(op.v)},
              {ids.o, op.o},
              {ids.stats, stats}},
             stats + row_bytes(op.shape));
  enqueue_rows_from_heads(context, op.shape, reinterpret_cast<const float*>(stats), op.lse);
}

void CudnnAttention::run(const Context& context, const AttentionBackward& op) {
  require_scratch(context, scratch_bytes(context, op));
  Impl::Planned& planned = impl_->planned(op);
  const AttentionGraph& ids = *planned.graph;
  const auto base = reinterpret_cast<std::uintptr_t>(context.scratch.data());
  std::byte* stats = context.scratch.data() + (kAlignment - base % kAlignment) % kAlignment;
  std::byte* delta = stats + row_bytes(op.shape);
  enqueue_heads_from_rows(context, op.shape, op.lse, reinterpret_cast<float*>(stats));
  impl_->run(context, planned,
             {{ids.q, mutable_address(op.q)},
              {ids.k, mutable_address(op.k)},
              {ids.v, mutable_address(op.v)},
              {ids.o, mutable_address(op.o)},
              {ids.stats, stats},
              {ids.output_grad, mutable_address(op.output_grad)},
              {ids.dq, op.dq},
              {ids.dk, op.dk},
              {ids.dv, op.dv},
              {ids.delta, delta}},
             delta + row_bytes(op.shape));
}

}  // namespace meshplan::kernels::cuda

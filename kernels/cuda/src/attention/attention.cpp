#include "attention/attention.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "attention/flash_attention.hpp"
#include "core/error.hpp"

namespace meshplan::kernels::cuda {

namespace {

void require_shape(const AttentionShape& shape) {
  require_invariant(shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
                    "attention has heads");
  require_invariant(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
}

constexpr std::string_view kind_of(const AttentionForward& /*op*/) {
  return "forward";
}
constexpr std::string_view kind_of(const AttentionBackward& /*op*/) {
  return "backward";
}
bool has_sinks(const AttentionForward& op) {
  return op.sinks != nullptr;
}
bool has_sinks(const AttentionBackward& /*op*/) {  // lse counts them
  return false;
}

template <class Op>
std::string description(const Op& op) {
  const AttentionShape& s = op.shape;
  return fmt::format(
      "attention {} {} sequences {} queries {} keys {} heads {}/{} x {}{}{}{}{}{}{}", kind_of(op),
      name_of(op.dtype), s.num_sequences, s.query_len, s.key_len, s.heads, s.kv_heads, s.head_size,
      s.value_size() != s.head_size ? fmt::format(" values x {}", s.value_size()) : "",
      s.causal ? " causal" : "", s.window > 0 ? fmt::format(" window {}", s.window) : "",
      has_sinks(op) ? " sinks" : "", s.softcap > 0 ? fmt::format(" soft cap {}", s.softcap) : "",
      op.key_lengths != nullptr  ? " key lengths"
      : op.key_ranges != nullptr ? " key ranges"
                                 : "");
}

std::int64_t flash_scratch_bytes(const AttentionForward& /*op*/) {
  return 0;
}

}  // namespace

std::string describe(const AttentionForward& op) {
  return description(op);
}
std::string describe(const AttentionBackward& op) {
  return description(op);
}

void require_shared_memory(const Context& context, std::int64_t bytes, int head_size) {
  if (bytes > context.max_shared_bytes)
    throw ConfigError(fmt::format(
        "attention with a head size of {} needs {} bytes of shared memory in a block, this GPU "
        "has {}",
        head_size, bytes, context.max_shared_bytes));
}

template <class Op>
bool AttentionKernels::uses_cudnn(const Context& context, const Op& op) {
  const AttentionLibrary wanted =
      op.choice.library == AttentionLibrary::Auto ? default_ : op.choice.library;
  if (wanted == AttentionLibrary::Own) return false;
  const std::string refusal = cudnn_.refusal(context, op);
  if (wanted == AttentionLibrary::Cudnn) {
    if (refusal.empty()) return true;
    throw ConfigError(fmt::format("cuDNN cannot compute {}: {}", describe(op), refusal));
  }
  if (log_) {
    const std::string line =
        fmt::format("{}: {}", describe(op), refusal.empty() ? "cuDNN" : "own kernel, " + refusal);
    if (said_.insert(line).second) log_(line);
  }
  return refusal.empty();
}

template <class Op>
std::int64_t AttentionKernels::scratch_of(const Context& context, const Op& op) {
  require_shape(op.shape);
  // Unaligned operands go to our own kernels, and pointers must not decide what is planned for.
  const std::int64_t own = flash_scratch_bytes(op);
  if (op.shape.num_sequences == 0 || !uses_cudnn(context, op)) return own;
  // An engine that takes another's place may want all that is planned.
  return std::max(own, op.choice.scratch_bytes.value_or(cudnn_.scratch_bytes(context, op)));
}
std::int64_t AttentionKernels::scratch_bytes(const Context& context, const AttentionForward& op) {
  return scratch_of(context, op);
}
std::int64_t AttentionKernels::scratch_bytes(const Context& context, const AttentionBackward& op) {
  return scratch_of(context, op);
}

void AttentionKernels::run(const Context& context, const AttentionForward& op) {
  require_shape(op.shape);
  if (op.shape.num_sequences == 0 || op.shape.query_len == 0) return;
  if (uses_cudnn(context, op))
    cudnn_.run(context, op);
  else
    enqueue_flash(context, op);
}
void AttentionKernels::run(const Context& context, const AttentionBackward& op) {
  require_shape(op.shape);
  if (op.shape.num_sequences == 0) return;
  if (uses_cudnn(context, op)) {
    if (cudnn_.run(context, op)) return;
    static_cast<void>(uses_cudnn(context, op));  // says why not; an error if asked for by name
  }
  enqueue_flash(context, op);
}

}  // namespace meshplan::kernels::cuda

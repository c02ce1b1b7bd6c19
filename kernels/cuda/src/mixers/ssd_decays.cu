#include "mixers/ssd_steps.cuh"
#include "mixers/ssd_tiles.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kHeads = 128;  // threads of a block

/// A thread for each head of a chunk, token by token. Sums are fp64.
template <class T, class Op>
__global__ void decays_kernel(const Op op, const SsdDecays decays) {
  constexpr double kToGrid = 0x1.8p44;  // adding it rounds to multiples of 2^-8
  const SsdChunk chunk(op.shape, blockIdx.x);
  const std::int64_t head = std::int64_t{blockIdx.y} * kHeads + threadIdx.x;
  if (head == 0 && decays.begin != nullptr) {
    std::int32_t begin = -1;
    for (int i = 0; i < chunk.length; ++i) {
      if (op.positions[chunk.first + i] == 0) begin = i;
      decays.begin[chunk.first + i] = begin;
    }
  }
  if (head >= op.shape.heads) return;
  const double a = -expf(to_float(static_cast<const T*>(op.a_log)[head]));
  double sum = 0.0;
  for (int i = 0; i < chunk.length; ++i) {
    const std::int64_t row = chunk.first + i;
    const float step = limited_step(op.limits, softplus(raw_step<T>(op, row, head)));
    sum += double{step} * a;
    const double on_grid = (sum + kToGrid) - kToGrid;
    const std::int64_t at = row * op.shape.heads + head;
    decays.step[at] = step;
    decays.high[at] = static_cast<float>(on_grid);
    decays.low[at] = static_cast<float>(sum - on_grid);
  }
}

template <class Op>
void enqueue_decays(const Context& context, const Op& op, const SsdDecays& decays) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(op.shape.num_sequences * op.shape.num_chunks()),
                   static_cast<unsigned>(ceil_div(op.shape.heads, kHeads))),
      .block = dim3(kHeads)};
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape, decays_kernel<typename decltype(type)::type, Op>, op, decays);
  });
}

/// Deals out `memory` in pieces that are aligned to 64 bytes.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class N>
  N* take(std::int64_t count) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += ceil_div(count * static_cast<std::int64_t>(sizeof(N)), 64) * 64;
    return reinterpret_cast<N*>(piece);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

template <class Op>
SsdDecays take_decays(Pieces& pieces, const Op& op) {
  const std::int64_t numbers = op.shape.tokens() * op.shape.heads;
  SsdDecays decays{.step = pieces.take<float>(numbers),
                   .high = pieces.take<float>(numbers),
                   .low = pieces.take<float>(numbers)};
  if (op.positions != nullptr) decays.begin = pieces.take<std::int32_t>(op.shape.tokens());
  return decays;
}

}  // namespace

SsdScratch ssd_scratch(const SsdForward& op, std::byte* memory) {
  Pieces pieces(memory);
  SsdScratch scratch{.decays = take_decays(pieces, op)};
  scratch.bytes = pieces.bytes();
  return scratch;
}

SsdScratch ssd_scratch(const SsdBackward& op, std::byte* memory) {
  const SsdShape& shape = op.shape;
  const std::int64_t numbers = shape.tokens() * shape.heads;
  const std::int64_t chunks = shape.num_sequences * shape.num_chunks();
  Pieces pieces(memory);
  SsdScratch scratch{.decays = take_decays(pieces, op),
                     .x_dot = pieces.take<float>(numbers),
                     .end_dot = pieces.take<float>(numbers),
                     .d_dot = pieces.take<float>(numbers),
                     .decay_grad = pieces.take<double>(numbers),
                     .state_grads = pieces.take<float>(chunks * shape.state_elements()),
                     .partials = pieces.take<float>(chunks * 3 * shape.heads)};
  scratch.bytes = pieces.bytes();
  return scratch;
}

void enqueue_ssd_decays(const Context& context, const SsdForward& op, const SsdDecays& decays) {
  enqueue_decays(context, op, decays);
}
void enqueue_ssd_decays(const Context& context, const SsdBackward& op, const SsdDecays& decays) {
  enqueue_decays(context, op, decays);
}

}  // namespace meshplan::kernels::cuda

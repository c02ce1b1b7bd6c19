#include "device/column_sums.cuh"
#include "device/reduce.cuh"
#include "mixers/operators.hpp"
#include "mixers/ssd_steps.cuh"
#include "mixers/ssd_tiles.cuh"

namespace meshplan::kernels::cuda {

namespace {

template <class T>
__device__ SsdRows<T> dy_rows(const SsdBackward& op, const SsdChunk& chunk, std::int64_t head) {
  return {static_cast<const T*>(op.dy) + chunk.first * op.dy_stride + head * op.shape.head_size,
          op.dy_stride, chunk.length, op.shape.head_size};
}

/// What the targets of each chunk add to the gradient of the state before it: where the gradient
/// of the state behind it will be.
template <class T>
__global__ void chunk_state_grads_kernel(const SsdBackward op, const SsdScratch scratch) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t head = blockIdx.z;
  const SsdHeadDecays decays(scratch.decays, shape, chunk, head);
  float* out =
      scratch.state_grads + (chunk.index * shape.heads + head) * shape.head_size * shape.state_size;
  sum_outer_products(out, shape, dy_rows<T>(op, chunk, head),
                     c_rows<T>(op, chunk, group_of(shape, head)),
                     [&](std::int64_t i) { return decays.from_start(i); });
}

/// Passes the gradient of the state back through the chunks of a sequence: a thread for each of its
/// numbers.
__global__ void pass_state_grads_kernel(const SsdBackward op, const SsdScratch scratch) {
  const SsdShape& shape = op.shape;
  const std::int64_t size = shape.head_size * shape.state_size;
  const std::int64_t i = std::int64_t{blockIdx.x} * kSsdThreads + threadIdx.x;
  if (i >= size) return;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const std::int64_t at = (sequence * shape.heads + head) * size + i;
  const std::int64_t chunks = shape.num_chunks();
  float grad = op.final_state_grad == nullptr ? 0.0F : op.final_state_grad[at];
  for (std::int64_t k = chunks - 1; k >= 0; --k) {
    const SsdChunk chunk(shape, sequence * chunks + k);
    float* slot = scratch.state_grads + (chunk.index * shape.heads + head) * size + i;
    const float of_chunk = *slot;
    *slot = grad;
    grad = SsdHeadDecays(scratch.decays, shape, chunk, head).across() * grad + of_chunk;
  }
  if (op.initial_state_grad != nullptr) op.initial_state_grad[at] = grad;
}

/// What the kernels of one head read of a chunk.
template <class T>
struct HeadOperands {
  SsdHeadDecays decays;
  SsdRows<T> x, dy, b, c;
  __device__ HeadOperands(const SsdBackward& op, const SsdScratch& scratch, const SsdChunk& chunk,
                          std::int64_t head)
      : decays(scratch.decays, op.shape, chunk, head),
        x(x_rows<T>(op, chunk, head)),
        dy(dy_rows<T>(op, chunk, head)),
        b(b_rows<T>(op, chunk, group_of(op.shape, head))),
        c(c_rows<T>(op, chunk, group_of(op.shape, head))) {}
};

/// The gradient of x dt' of 64 sources and 64 columns from the chunk's targets.
template <class T>
__device__ SsdSums sum_over_targets(const HeadOperands<T>& in, int length, std::int64_t source,
                                    std::int64_t first_p) {
  SsdTile& weights = block_shared<SsdTile>();
  SsdSums sums;
  for (std::int64_t target = source; target < length; target += kSsdTile) {
    SsdSums scores;
    multiply_tile<true, true>(
        scores, in.b.columns, [&](int j, std::int64_t n) { return in.b(source + j, n); },
        [&](std::int64_t n, int i) { return in.c(target + i, n); });
    for_each_sum(scores, [&](int row, int column, float score) {
      const std::int64_t j = source + row;
      const std::int64_t i = target + column;
      weights.at[row][column] = i < length && j < length ? score * in.decays.between(j, i) : 0.0F;
    });
    multiply_tile<true, false>(
        sums, kSsdTile, [&](int j, std::int64_t i) { return weights.at[j][i]; },
        [&](std::int64_t i, int column) { return in.dy(target + i, first_p + column); });
  }
  return sums;
}

/// The same from the state behind the chunk.
template <class T>
__device__ SsdSums from_state_behind(const HeadOperands<T>& in, int length,
                                     const SsdState& state_grad, std::int64_t source,
                                     std::int64_t first_p) {
  SsdSums sums;
  multiply_tile<true, true>(
      sums, in.b.columns,
      [&](int j, std::int64_t n) {
        return source + j < length ? in.b(source + j, n) * in.decays.to_end(source + j) : 0.0F;
      },
      [&](std::int64_t n, int column) { return state_grad(first_p + column, n); });
  return sums;
}

/// A thread's parts of dot products over the rows of x.
struct RowDots {
  float of_x[kSsdOwn] = {};
  float of_end[kSsdOwn] = {};
  float of_d[kSsdOwn] = {};
};

/// Adds up the parts of the threads that share rows.
__device__ inline void store_dots(const RowDots& dots, const SsdScratch& scratch,
                                  const SsdShape& shape, const SsdChunk& chunk, std::int64_t head,
                                  std::int64_t source) {
  const SsdHeadDecays decays(scratch.decays, shape, chunk, head);
  for (int r = 0; r < kSsdOwn; ++r) {
    const float of_x = sum_of_row(dots.of_x[r]);
    const float of_end = sum_of_row(dots.of_end[r]);
    const float of_d = sum_of_row(dots.of_d[r]);
    const std::int64_t j = source + ssd_row() + r;
    if (ssd_column() != 0 || j >= chunk.length) continue;
    const std::int64_t at = (chunk.first + j) * shape.heads + head;
    scratch.x_dot[at] = of_x;
    scratch.end_dot[at] = of_end * decays.step(j);
    scratch.d_dot[at] = of_d;
  }
}

/// dx of a tile: 64 sources of a chunk and one head. Keeps the dot products that ddt needs.
template <class T>
__global__ void x_grads_kernel(const SsdBackward op, const SsdScratch scratch) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t head = blockIdx.z;
  const std::int64_t source = std::int64_t{blockIdx.y} * kSsdTile;
  if (source >= chunk.length) return;
  const HeadOperands<T> in(op, scratch, chunk, head);
  const SsdState state_grad(scratch.state_grads, shape, chunk.index, head);
  const float d = to_float(static_cast<const T*>(op.d)[head]);
  T* dx = static_cast<T*>(op.dxbc) + chunk.first * op.dxbc_stride + head * shape.head_size;
  RowDots dots;
  for (std::int64_t p = 0; p < shape.head_size; p += kSsdTile) {
    SsdSums inside = sum_over_targets(in, chunk.length, source, p);
    SsdSums behind = from_state_behind(in, chunk.length, state_grad, source, p);
    for (int r = 0; r < kSsdOwn; ++r)
      for (int k = 0; k < kSsdOwn; ++k) {
        const std::int64_t j = source + ssd_row() + r;
        const std::int64_t column = p + ssd_column() + k;
        if (j >= chunk.length || column >= shape.head_size) continue;
        const float x = in.x(j, column);
        const float dy = in.dy(j, column);
        const float grad = inside.at[r][k] + behind.at[r][k];
        dots.of_x[r] += x * grad;
        dots.of_end[r] += x * behind.at[r][k];
        dots.of_d[r] += x * dy;
        dx[j * op.dxbc_stride + column] = from_float<T>(grad * in.decays.step(j) + d * dy);
      }
  }
  store_dots(dots, scratch, shape, chunk, head, source);
}

/// The gradients of scores between 64 own tokens and 64 others, summed over a group's heads, in
/// `out`. Own tokens are sources or targets.
template <bool own_are_sources, class T>
__device__ void sum_score_grads(const SsdBackward& op, const SsdScratch& scratch,
                                const SsdChunk& chunk, std::int64_t group, std::int64_t own,
                                std::int64_t other, SsdTile& out) {
  const SsdShape& shape = op.shape;
  const std::int64_t heads = shape.heads / shape.groups;
  SsdSums total;
  for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    const SsdHeadDecays decays(scratch.decays, shape, chunk, head);
    const SsdRows<T> x = x_rows<T>(op, chunk, head);
    const SsdRows<T> dy = dy_rows<T>(op, chunk, head);
    SsdSums products;
    multiply_tile<true, true>(
        products, shape.head_size,
        [&](int row, std::int64_t p) {
          return own_are_sources ? x(own + row, p) : dy(own + row, p);
        },
        [&](std::int64_t p, int column) {
          return own_are_sources ? dy(other + column, p) : x(other + column, p);
        });
    for (int r = 0; r < kSsdOwn; ++r)
      for (int k = 0; k < kSsdOwn; ++k) {
        const std::int64_t mine = own + ssd_row() + r;
        const std::int64_t theirs = other + ssd_column() + k;
        const std::int64_t source = own_are_sources ? mine : theirs;
        const std::int64_t target = own_are_sources ? theirs : mine;
        if (source < chunk.length && target < chunk.length)
          total.at[r][k] +=
              products.at[r][k] * decays.between(source, target) * decays.step(source);
      }
  }
  for_each_sum(total, [&](int row, int column, float sum) { out.at[row][column] = sum; });
}

/// Adds what heads of a group give to 64 own tokens' b through the state behind the chunk, or to
/// their c through the state on entry.
template <bool of_b, class T>
__device__ void add_state_part(SsdSums& sums, const SsdBackward& op, const SsdScratch& scratch,
                               const SsdChunk& chunk, std::int64_t group, std::int64_t own,
                               std::int64_t first_n) {
  const SsdShape& shape = op.shape;
  const std::int64_t heads = shape.heads / shape.groups;
  for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    const SsdHeadDecays decays(scratch.decays, shape, chunk, head);
    const SsdRows<T> rows = of_b ? x_rows<T>(op, chunk, head) : dy_rows<T>(op, chunk, head);
    const SsdState state(of_b ? scratch.state_grads : op.states, shape, chunk.index, head);
    multiply_tile<true, false>(
        sums, shape.head_size,
        [&](int row, std::int64_t p) {
          const std::int64_t i = own + row;
          if (i >= chunk.length) return 0.0F;
          return rows(i, p) * (of_b ? decays.step(i) * decays.to_end(i) : decays.from_start(i));
        },
        [&](std::int64_t p, int column) { return state(p, first_n + column); });
  }
}

/// db or dc of a tile: 64 tokens of a chunk and 64 numbers of one group.
template <bool of_b, class T>
__global__ void bc_grads_kernel(const SsdBackward op, const SsdScratch scratch) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t group = blockIdx.z;
  const auto across = static_cast<unsigned>((shape.state_size + kSsdTile - 1) / kSsdTile);
  const std::int64_t own = std::int64_t{blockIdx.y / across} * kSsdTile;
  const std::int64_t first_n = std::int64_t{blockIdx.y % across} * kSsdTile;
  if (own >= chunk.length) return;
  const SsdRows<T> others = of_b ? c_rows<T>(op, chunk, group) : b_rows<T>(op, chunk, group);
  SsdTile& score_grads = block_shared<SsdTile>();
  SsdSums sums;
  const std::int64_t end = of_b ? chunk.length : own + 1;
  for (std::int64_t other = of_b ? own : 0; other < end; other += kSsdTile) {
    sum_score_grads<of_b, T>(op, scratch, chunk, group, own, other, score_grads);
    multiply_tile<true, false>(
        sums, kSsdTile, [&](int row, std::int64_t k) { return score_grads.at[row][k]; },
        [&](std::int64_t k, int column) { return others(other + k, first_n + column); });
  }
  add_state_part<of_b, T>(sums, op, scratch, chunk, group, own, first_n);
  T* out = static_cast<T*>(op.dxbc) + chunk.first * op.dxbc_stride + shape.columns() +
           (of_b ? group : shape.groups + group) * shape.state_size;
  for_each_sum(sums, [&](int row, int column, float sum) {
    const std::int64_t i = own + row;
    if (i < chunk.length && first_n + column < shape.state_size)
      out[i * op.dxbc_stride + first_n + column] = from_float<T>(sum);
  });
}

/// Paths between tokens of a chunk, to the gradients of decays: a path adds to its target and takes
/// from its source. The sum from a token on is then that of the paths which cross the step to it,
/// to fp64, for both have the same numbers.
template <class T>
__device__ void add_inner_paths(const SsdBackward& op, const SsdScratch& scratch,
                                const SsdChunk& chunk, std::int64_t head, double* decay_grad) {
  const SsdShape& shape = op.shape;
  const HeadOperands<T> in(op, scratch, chunk, head);
  SsdTile& paths = block_shared<SsdTile>();
  for (std::int64_t target = 0; target < chunk.length; target += kSsdTile)
    for (std::int64_t source = 0; source <= target; source += kSsdTile) {
      SsdSums scores;
      multiply_tile<true, true>(
          scores, shape.state_size, [&](int i, std::int64_t n) { return in.c(target + i, n); },
          [&](std::int64_t n, int j) { return in.b(source + j, n); });
      SsdSums products;
      multiply_tile<true, true>(
          products, shape.head_size, [&](int i, std::int64_t p) { return in.dy(target + i, p); },
          [&](std::int64_t p, int j) { return in.x(source + j, p); });
      for_each_sum(scores, [&](int row, int column, float score) {
        const std::int64_t i = target + row;
        const std::int64_t j = source + column;
        const float product = products.at[row - ssd_row()][column - ssd_column()];
        paths.at[row][column] = i < chunk.length && j < i
                                    ? score * product * in.decays.between(j, i) * in.decays.step(j)
                                    : 0.0F;
      });
      __syncthreads();
      const auto own = static_cast<int>(threadIdx.x);
      if (own < kSsdTile && target + own < chunk.length) {
        double sum = 0.0;
        for (int j = 0; j < kSsdTile; ++j) sum += double{paths.at[own][j]};
        decay_grad[(target + own) * shape.heads] += sum;
      }
      __syncthreads();  // the tile of targets may be that of sources
      if (own < kSsdTile && source + own < chunk.length) {
        double sum = 0.0;
        for (int i = 0; i < kSsdTile; ++i) sum += double{paths.at[i][own]};
        decay_grad[(source + own) * shape.heads] -= sum;
      }
      __syncthreads();
    }
}

/// Paths from the state on entry: each adds to its target.
template <class T>
__device__ void add_entry_paths(const SsdBackward& op, const SsdScratch& scratch,
                                const SsdChunk& chunk, std::int64_t head, double* decay_grad) {
  const SsdShape& shape = op.shape;
  const SsdHeadDecays decays(scratch.decays, shape, chunk, head);
  const SsdRows<T> dy = dy_rows<T>(op, chunk, head);
  const SsdRows<T> c = c_rows<T>(op, chunk, group_of(shape, head));
  const SsdState h(op.states, shape, chunk.index, head);
  for (std::int64_t target = 0; target < chunk.length; target += kSsdTile) {
    float dots[kSsdOwn] = {};
    for (std::int64_t p = 0; p < shape.head_size; p += kSsdTile) {
      SsdSums outputs;
      multiply_tile<true, true>(
          outputs, shape.state_size, [&](int i, std::int64_t n) { return c(target + i, n); },
          [&](std::int64_t n, int column) { return h(p + column, n); });
      for_each_sum(outputs, [&](int row, int column, float output) {
        dots[row - ssd_row()] += output * dy(target + row, p + column);
      });
    }
    for (int r = 0; r < kSsdOwn; ++r) {
      const float dot = sum_of_row(dots[r]);
      const std::int64_t i = target + ssd_row() + r;
      if (ssd_column() == 0 && i < chunk.length)
        decay_grad[i * shape.heads] += double{dot} * double{decays.from_start(i)};
    }
  }
}

/// The path from the state on entry to the one behind the chunk.
__device__ inline float across_path(const SsdBackward& op, const SsdScratch& scratch,
                                    const SsdChunk& chunk, std::int64_t head) {
  const std::int64_t size = op.shape.head_size * op.shape.state_size;
  const std::int64_t first = (chunk.index * op.shape.heads + head) * size;
  float products = 0.0F;
  for (std::int64_t i = threadIdx.x; i < size; i += kSsdThreads)
    products += op.states[first + i] * scratch.state_grads[first + i];
  return group_reduce<kSsdThreads>(products, Sum()) *
         SsdHeadDecays(scratch.decays, op.shape, chunk, head).across();
}

/// From what paths add and take to the gradient of each token's decay.
__device__ inline void sum_paths(const SsdShape& shape, const SsdChunk& chunk, const float* end_dot,
                                 float across, double* decay_grad) {
  double sum = double{across};  // of paths that end behind this token and begin before it
  for (std::int64_t i = 0; i < chunk.length; ++i) sum += double{end_dot[i * shape.heads]};
  for (std::int64_t i = std::int64_t{chunk.length} - 1; i >= 0; --i) {
    sum += decay_grad[i * shape.heads] - double{end_dot[i * shape.heads]};
    decay_grad[i * shape.heads] = sum;
  }
}

/// ddt of one head and chunk, and its part of the gradients of a_log, d and dt_bias.
template <class T>
__global__ void step_grads_kernel(const SsdBackward op, const SsdScratch scratch) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t head = blockIdx.y;
  const std::int64_t at = chunk.first * shape.heads + head;
  double* decay_grad = scratch.decay_grad + at;
  for (std::int64_t i = threadIdx.x; i < chunk.length; i += kSsdThreads)
    decay_grad[i * shape.heads] = 0.0;
  __syncthreads();
  add_inner_paths<T>(op, scratch, chunk, head, decay_grad);
  add_entry_paths<T>(op, scratch, chunk, head, decay_grad);
  const float across = across_path(op, scratch, chunk, head);
  __syncthreads();
  if (threadIdx.x == 0) sum_paths(shape, chunk, scratch.end_dot + at, across, decay_grad);
  __syncthreads();
  const float a = -expf(to_float(static_cast<const T*>(op.a_log)[head]));
  float of_a = 0.0F;
  float of_d = 0.0F;
  float of_bias = 0.0F;
  for (std::int64_t i = threadIdx.x; i < chunk.length; i += kSsdThreads) {
    const std::int64_t own = i * shape.heads;
    const std::int64_t row = chunk.first + i;
    const auto decay = static_cast<float>(decay_grad[own]);
    const float slope = step_slope(op.limits, raw_step<T>(op, row, head));
    const float grad = (scratch.x_dot[at + own] + a * decay) * slope;
    static_cast<T*>(op.ddt)[row * op.ddt_stride + head] = from_float<T>(grad);
    of_a += scratch.decays.step[at + own] * decay;
    of_d += scratch.d_dot[at + own];
    of_bias += grad;
  }
  of_a = group_reduce<kSsdThreads>(of_a, Sum());
  of_d = group_reduce<kSsdThreads>(of_d, Sum());
  of_bias = group_reduce<kSsdThreads>(of_bias, Sum());
  if (threadIdx.x != 0) return;
  float* partials = scratch.partials + chunk.index * 3 * shape.heads + head;
  partials[0] = of_a * a;
  partials[shape.heads] = of_d;
  partials[2 * shape.heads] = of_bias;
}

}  // namespace

std::int64_t scratch_bytes(const SsdBackward& op) {
  return ssd_scratch(op, nullptr).bytes;
}

void enqueue(const Context& context, const SsdBackward& op) {
  const SsdShape& shape = op.shape;
  require_invariant(shape.groups > 0 && shape.heads % shape.groups == 0,
                    "heads of a state-space mixer are a multiple of its groups");
  require_scratch(context, scratch_bytes(op));
  const SsdScratch scratch = ssd_scratch(op, context.scratch.data());
  enqueue_ssd_decays(context, op, scratch.decays);
  const std::int64_t tokens = ssd_token_tiles(shape);
  const std::int64_t bc_tiles = tokens * ssd_tiles(shape.state_size);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, ssd_launch(shape, ssd_state_tiles(shape), shape.heads),
           chunk_state_grads_kernel<T>, op, scratch);
    launch(context, ssd_state_launch(shape), pass_state_grads_kernel, op, scratch);
    launch(context, ssd_launch(shape, tokens, shape.heads), x_grads_kernel<T>, op, scratch);
    launch(context, ssd_launch(shape, bc_tiles, shape.groups), bc_grads_kernel<true, T>, op,
           scratch);
    launch(context, ssd_launch(shape, bc_tiles, shape.groups), bc_grads_kernel<false, T>, op,
           scratch);
    launch(context, ssd_launch(shape, shape.heads, 1), step_grads_kernel<T>, op, scratch);
  });
  const std::int64_t chunks = shape.num_sequences * shape.num_chunks();
  float* out[3] = {op.da_log, op.dd, op.ddt_bias};
  for (int i = 0; i < 3; ++i)
    if (out[i] != nullptr)
      enqueue_sum_partials(context, scratch.partials + i * shape.heads, chunks, 3 * shape.heads,
                           shape.heads, out[i], op.accumulate);
}

}  // namespace meshplan::kernels::cuda

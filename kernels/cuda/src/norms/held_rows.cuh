// Rows that threads hold in registers: read from memory once, however often a kernel goes over
// them, and the sums over rows that they keep beside.
#pragma once

#include "device/column_sums.cuh"

namespace meshplan::kernels::cuda {

/// A group of threads holds a row of at most kThreads * kElements elements of T in packs of 16
/// bytes, which lie kThreads packs apart.
template <class T, int kThreads_, int kElements>
struct HeldRow : RowGroup<kThreads_> {
  using Element = T;
  static constexpr int kThreads = kThreads_;
  static constexpr int kWidth = kPackWidth<T>;
  static constexpr int kPacks = kElements / kWidth;
  /// Blocks of an SM: as many as leave each thread registers for three packs and two sums.
  static constexpr int kBlocksPerSm = kElements > 16 ? 1 : 2;
  /// Are there registers for a second row's packs?
  static constexpr bool kReadsAhead = kElements * sizeof(T) <= 32;
};

/// Calls body(p, column) for every pack that this thread holds.
template <class Row, class Body>
__device__ void for_each_held(std::int64_t size, const Body& body) {
#pragma unroll
  for (int p = 0; p < Row::kPacks; ++p) {
    const std::int64_t i = (std::int64_t{p} * Row::kThreads + Row::thread()) * Row::kWidth;
    if (i < size) body(p, i);
  }
}

/// 16 bytes as they lie in memory; half as many registers as their numbers in fp32.
template <class T>
__device__ uint4 load_words(const T* p) {
  return *reinterpret_cast<const uint4*>(p);
}
template <class T>
__device__ Pack<kPackWidth<T>> unpack(const uint4& words) {
  T raw[kPackWidth<T>];
  memcpy(raw, &words, sizeof words);
  Pack<kPackWidth<T>> pack;
  for (int i = 0; i < kPackWidth<T>; ++i) pack[i] = to_float(raw[i]);
  return pack;
}

/// What the gradient of a norm reads of a row.
template <class Row>
struct HeldOperands {
  uint4 dy[Row::kPacks];
  uint4 x[Row::kPacks];
  uint4 residual[Row::kPacks];
  template <class Operands>
  __device__ void load(const Operands& row, std::int64_t size) {
    for_each_held<Row>(size, [&](int p, std::int64_t i) {
      dy[p] = load_words(row.dy + i);
      x[p] = load_words(row.x + i);
      if (row.residual != nullptr) residual[p] = load_words(row.residual + i);
    });
  }
};

/// Calls body(row, held) for rows first, first + kRowsPerBlock, ... before `end`, where row =
/// row_at(t). Where there are registers for it, the next row is on its way meanwhile.
template <class Row, class RowAt, class Body>
__device__ void for_each_held_row(std::int64_t first, std::int64_t end, std::int64_t size,
                                  const RowAt& row_at, const Body& body) {
  HeldOperands<Row> next;
  if (Row::kReadsAhead && first < end) next.load(row_at(first), size);
  for (std::int64_t t = first; t < end; t += Row::kRowsPerBlock) {
    auto row = row_at(t);
    if (!Row::kReadsAhead) next.load(row, size);
    const HeldOperands<Row> held = next;
    if (Row::kReadsAhead && t + Row::kRowsPerBlock < end)
      next.load(row_at(t + Row::kRowsPerBlock), size);
    body(row, held);
  }
}

/// Calls body(HeldRow) with the smallest one for rows of `size`. False where there is none: rows
/// that are not whole packs, or of more than 8,192 elements.
template <class T, class Body>
bool with_held_row(std::int64_t size, const Body& body) {
  constexpr std::int64_t kMostElements = 32;
  if (size % kPackWidth<T> != 0 || size > kRowThreads * kMostElements) return false;
  static_assert(kWarpRow == kWarp * kMostElements);
  if (size <= kWarp * 8)
    body(HeldRow<T, kWarp, 8>{});
  else if (size <= kWarpRow)
    body(HeldRow<T, kWarp, 32>{});
  else if (size <= kRowThreads * 8)
    body(HeldRow<T, kRowThreads, 8>{});
  else if (size <= kRowThreads * 16)
    body(HeldRow<T, kRowThreads, 16>{});
  else
    body(HeldRow<T, kRowThreads, 32>{});
  return true;
}

/// Chooses among the kernels of rows: held(HeldRow) where threads can hold one, else any(number of
/// threads for a row, width of its packs), both as Count.
template <class T, class Held, class Any>
void with_row_kernel(std::int64_t size, bool aligned, const Held& held, const Any& any) {
  if (aligned && with_held_row<T>(size, held)) return;
  with_pack_width<kPackWidth<T>>(aligned, [&](auto width) {
    with_row_group(size, [&](auto threads) { any(threads, width); });
  });
}

/// Can what a norm's gradient reads and writes be accessed in packs?
template <class T, class NormBackward>
bool gradient_allows_packs(const NormBackward& op) {
  const std::int64_t bytes = sizeof(T);
  return allows_packs(kPackWidth<T>, {{op.dy, op.dy_stride, bytes},
                                      {op.x, op.x_stride, bytes},
                                      {op.weight, 0, bytes},
                                      {op.dx, op.dx_stride, bytes},
                                      {op.residual, op.dx_stride, bytes}});
}

/// Adds up the sums of a block's groups, a row of `rows` each, in one row of `columns`.
template <class Group>
__device__ void add_up_groups(const float* rows, std::int64_t columns, float* block_row) {
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    float total = 0.0F;
    for (int group = 0; group < Group::kRowsPerBlock; ++group) total += rows[group * columns + i];
    block_row[i] = total;
  }
}

/// Bytes of dynamic shared memory for leave_partials: none where a row is a block's work.
template <class Row>
constexpr std::size_t shared_for_held(std::int64_t columns) {
  return Row::kRowsPerBlock == 1
             ? 0
             : static_cast<std::size_t>(Row::kRowsPerBlock * columns * size_of(DType::F32));
}

/// Adds up the threads' sums of kSums results, side by side, in this block's row of `partials`
/// (blocks, kSums * size).
template <class Row, int kSums>
__device__ void leave_partials(const Pack<Row::kWidth> (&sums)[kSums][Row::kPacks],
                               std::int64_t size, float* partials) {
  const std::int64_t columns = kSums * size;
  float* block_row = partials + std::int64_t{blockIdx.x} * columns;
  float* rows = Row::kRowsPerBlock == 1 ? block_row : dynamic_shared<float>();
  for_each_held<Row>(size, [&](int p, std::int64_t i) {
    for (int sum = 0; sum < kSums; ++sum)
      store_pack(rows + Row::group() * columns + sum * size + i, sums[sum][p]);
  });
  if constexpr (Row::kRowsPerBlock > 1) add_up_groups<Row>(rows, columns, block_row);
}

}  // namespace meshplan::kernels::cuda

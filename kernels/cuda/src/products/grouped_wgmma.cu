#include <algorithm>

#include "device/async_copy.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "device/wgmma.cuh"
#include "products/grouped_tiles.cuh"

namespace meshplan::kernels::cuda {

namespace {

// A block's tile of the result, of which each warpgroup has kWgmmaRows rows.
constexpr int kTileRows = 128;
constexpr int kTileColumns = kWgmmaColumns;
constexpr int kThreads = kTileRows / kWgmmaRows * kWarpgroup;

constexpr int kTileDepth = kSwizzleLine / 2;  // numbers of 16 bits in a line
constexpr int kOperandBytes = kTileRows * kSwizzleLine;
constexpr int kStageBytes = kOperandBytes + kTileColumns * kSwizzleLine;

/// Shared memory in turns: one stage whose products have been started, one whose products end, and
/// kAhead that are filled meanwhile.
class Stages {
 public:
  static constexpr int kCount = 4;
  static constexpr int kAhead = kCount - 2;
  static constexpr std::size_t kBytes = kSwizzlePattern + std::size_t{kCount} * kStageBytes;

  /// In the block's shared memory, from its first pattern on.
  __device__ Stages() {
    auto* shared = dynamic_shared<std::byte>();
    const unsigned over = shared_address(shared) % kSwizzlePattern;
    first_ = shared + (kSwizzlePattern - over) % kSwizzlePattern;
  }
  __device__ std::byte* of(unsigned step) const { return first_ + step % kCount * kStageBytes; }

 private:
  std::byte* first_;
};

template <Product product>
constexpr Major kMajorOfA = product == Product::ColumnsByColumns ? Major::Rows : Major::Depth;
template <Product product>
constexpr Major kMajorOfB = product == Product::RowsByRows ? Major::Depth : Major::Rows;

/// Bytes to the next 64 rows: a line for each of the tile's depth. By depth the ISA takes one unit
/// for granted, whatever is given.
template <Major major>
constexpr unsigned kNextRows = major == Major::Rows ? kTileDepth* kSwizzleLine : 16;

/// Bytes from an operand's element (0, k) to (0, k + kWgmmaDepth).
template <Major major>
constexpr unsigned kDepthStep = major == Major::Depth ? kWgmmaDepth * 2 : kWgmmaDepth* kSwizzleLine;

/// Bytes from an operand's element (0, 0) to (kWgmmaRows, 0).
constexpr unsigned kRowsStep = kWgmmaRows * kSwizzleLine;
static_assert(kRowsStep == kNextRows<Major::Rows>, "whichever dimension lines follow");

/// Of a row-major matrix's rows or columns: where a tile begins, and where they end.
struct Part {
  std::int64_t first, end;
};

/// Starts to copy kLines lines (wgmma.cuh) of an operand to shared memory, zeros for what lies
/// beyond an end. @param from  row-major: lines lie along its rows
/// @param along  its columns: the depth, or with Major::Rows the operand's rows; multiples of 8
template <Major major, int kLines, class T>
__device__ void copy_operand(std::byte* to, const T* from, std::int64_t stride, Part across,
                             Part along) {
  constexpr int kPieces = kSwizzleLine / 16;
  constexpr int kLinesAtOnce = kThreads / kPieces;
  const int line = static_cast<int>(threadIdx.x) / kPieces;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const std::int64_t across_left = across.end - across.first - line;
  const std::int64_t along_left = along.end - along.first - 8 * piece;
  const T* source = from + (across.first + line) * stride + along.first + 8 * piece;
#pragma unroll
  for (int begin = 0; begin < kLines; begin += kLinesAtOnce) {
    const int down = major == Major::Depth ? begin : begin % kTileDepth;
    const int right = major == Major::Depth ? 0 : begin / kTileDepth * kWgmmaRows;
    copy_async_or_zero(to + swizzled(begin + line, piece), source + down * stride + right,
                       down < across_left && right < along_left);
  }
}

/// The steps of a block, one after the other over all its tiles: each adds kTileDepth products to
/// every sum of its tile.
template <class T, Product product>
class Loader {
 public:
  __device__ explicit Loader(const GroupedProduct& op) : op_(op), walk_(op, blockIdx.x) {
    find_work();
  }
  /// Starts to copy the operands of the next step, if there is one, as a group of copies.
  __device__ void load(std::byte* stage) {
    if (!walk_.ended()) {
      const T* b = static_cast<const T*>(op_.b);
      if (product != Product::ColumnsByColumns) b += at_.group * op_.depth * op_.columns;
      copy<kMajorOfA<product>, kTileRows>(stage, op_.a, op_.a_stride, {at_.first_row, at_.end_row});
      copy<kMajorOfB<product>, kTileColumns>(stage + kOperandBytes, b, op_.b_stride,
                                             {at_.first_column, op_.columns});
      depth_ += kTileDepth;
      if (depth_ >= at_.end) {
        walk_.move(gridDim.x);
        find_work();
      }
    }
    commit_copies();
  }

 private:
  template <Major major, int kLines>
  __device__ void copy(std::byte* to, const void* from, std::int64_t stride, Part rows) const {
    const Part depth{depth_, at_.end};
    copy_operand<major, kLines>(to, static_cast<const T*>(from), stride,
                                major == Major::Depth ? rows : depth,
                                major == Major::Depth ? depth : rows);
  }
  /// Goes on to a tile that has something to sum, and to its first step.
  __device__ void find_work() {
    for (; !walk_.ended(); walk_.move(gridDim.x)) {
      at_ = walk_.tile();
      depth_ = at_.begin;
      if (depth_ < at_.end) return;
    }
  }

  const GroupedProduct& op_;
  TileWalk<product, kTileRows, kTileColumns> walk_;
  GroupedTile at_{};
  std::int64_t depth_ = 0;
};

/// Starts c += this warpgroup's rows of a stage's product, as a group of products.
template <class T, Product product>
__device__ void multiply_stage(WgmmaSums& c, const std::byte* stage) {
  constexpr Major kA = kMajorOfA<product>;
  constexpr Major kB = kMajorOfB<product>;
  const unsigned a = shared_address(stage) + threadIdx.x / kWarpgroup * kRowsStep;
  const unsigned b = shared_address(stage) + kOperandBytes;
  wgmma_fence();
#pragma unroll
  for (unsigned step = 0; step < kTileDepth / kWgmmaDepth; ++step)
    wgmma<T, kA, kB>(c, wgmma_operand(a + step * kDepthStep<kA>, kNextRows<kA>),
                     wgmma_operand(b + step * kDepthStep<kB>, kNextRows<kB>));
  wgmma_commit();
}

template <class T, Product product>
__device__ void multiply_groups(const GroupedProduct& op) {
  constexpr int kAhead = Stages::kAhead;
  const Stages stages;
  Loader<T, product> loader(op);
  for (unsigned step = 0; step < kAhead; ++step) loader.load(stages.of(step));

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  unsigned step = 0;
  TileWalk<product, kTileRows, kTileColumns> walk(op, blockIdx.x);
  for (; !walk.ended(); walk.move(gridDim.x)) {
    const GroupedTile at = walk.tile();
    WgmmaSums c = {};
    settle_wgmma_sums(c);
    for (std::int64_t k = at.begin; k < at.end; k += kTileDepth, ++step) {
      wait_for_copies_but<kAhead - 1>();  // this step's have arrived
      show_to_wgmma();
      wgmma_wait<1>();  // the step before last has ended: its stage is free
      __syncthreads();  // ... and all of this holds for every thread
      multiply_stage<T, product>(c, stages.of(step));
      loader.load(stages.of(step + kAhead));
    }
    wgmma_wait<0>();
    settle_wgmma_sums(c);
    finish_tile<product, T, kTileColumns>(op, at, warp * 16, c, true);
  }
}

/// Each block does every gridDim.x-th tile. Its steps follow each other without a gap: while a tile
/// is finished, the operands of the next one arrive.
template <class T, Product product>
__global__ void __launch_bounds__(kThreads, 1) grouped_wgmma_kernel(const GroupedProduct op) {
  if (kHasWgmma) multiply_groups<T, product>(op);
}

}  // namespace

bool runs_on_wgmma(const Context& context, Product product, const GroupedProduct& op, DType dtype) {
  // MESHPLAN_WGMMA: whether there is machine code for sm_90a; the emulator runs it, too.
  constexpr bool kCompiled = MESHPLAN_WGMMA != 0;
  if (!kCompiled || context.compute_capability != 90 ||
      (dtype != DType::BF16 && dtype != DType::F16))
    return false;
  const std::int64_t result_bytes = product == Product::ColumnsByColumns ? 4 : 2;
  const bool whole = op.rows % 8 == 0 && op.columns % 8 == 0 && op.depth % 8 == 0;
  return whole && allows_packs(8, {{op.a, op.a_stride, 2},
                                   {op.b, op.b_stride, 2},
                                   {op.result, op.result_stride, result_bytes}});
}

void enqueue_on_wgmma(const Context& context, Product product, const GroupedProduct& op,
                      DType dtype, std::int64_t max_rows) {
  const std::int64_t tiles = most_tiles(product, op, max_rows, kTileRows, kTileColumns);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(tiles, context.num_sms))),
      .block = dim3(kThreads),
      .shared_bytes = Stages::kBytes};
  const auto enqueue_in = [&](auto type) {
    using T = typename decltype(type)::type;
    if (product == Product::RowsByRows)
      launch(context, shape, grouped_wgmma_kernel<T, Product::RowsByRows>, op);
    else if (product == Product::RowsByColumns)
      launch(context, shape, grouped_wgmma_kernel<T, Product::RowsByColumns>, op);
    else
      launch(context, shape, grouped_wgmma_kernel<T, Product::ColumnsByColumns>, op);
  };
  if (dtype == DType::BF16)
    enqueue_in(Type<__nv_bfloat16>{});
  else
    enqueue_in(Type<__half>{});
}

}  // namespace meshplan::kernels::cuda

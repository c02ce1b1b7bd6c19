#include "cuda_on_cpu/wgmma.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "cuda_on_cpu/block.hpp"

namespace cuda_on_cpu {

namespace {

constexpr std::size_t kWarpgroup = 128;
constexpr int kDepth = 16;
constexpr unsigned kPiece = 16;      // bytes that are copied, and swizzled, as one
constexpr unsigned kWindow = 0x410;  // where dynamic shared memory begins in the shared window
constexpr int kRowsOfThread = 2;     // g and g + 8 of its warp's 16
using ToFloat = float (*)(std::uint16_t);

/// A matrix descriptor, field by field (PTX ISA, "Matrix descriptor format").
struct Descriptor {
  unsigned start, leading, stride;  // bytes
  unsigned base_offset;
  unsigned line;  // bytes that are swizzled together: 16 (not swizzled), 32, 64 or 128

  /// Byte of the shared window where element (row, k) of an operand of 16-bit numbers lies: PTX
  /// ISA, table "canonical layouts", with T = 8 numbers in 16 bytes; then the swizzle of its last
  /// column, Swizzle<log2(line / 16), 4, 3>. @param by_rows  the instruction's imm-trans
  unsigned address(bool by_rows, int row, int k) const {
    const bool swizzled = line > kPiece;
    const auto r = static_cast<unsigned>(row);
    const auto depth = static_cast<unsigned>(k);
    unsigned address = start;
    if (!by_rows) {
      address += r / 8 * stride + r % 8 * line;
      address += swizzled ? depth * 2 : depth / 8 * leading + depth % 8 * 2;
    } else {
      const unsigned rows_of_line = line / 2;
      address += r / rows_of_line * (swizzled ? leading : stride) + r % rows_of_line * 2;
      address += depth / 8 * (swizzled ? stride : leading) + depth % 8 * line;
    }
    return address ^ (address >> 7 & (line / kPiece - 1)) << 4;
  }
};

/// @throws Fault where the descriptor asks for what is not modelled
Descriptor decode(std::uint64_t bits) {
  const auto bytes = [&](int at) { return static_cast<unsigned>(bits >> at & 0x3fffU) << 4; };
  constexpr std::array<unsigned, 4> kLineOfMode = {kPiece, 128, 64, 32};
  const Descriptor d{bytes(0), bytes(16), bytes(32), static_cast<unsigned>(bits >> 49 & 7U),
                     kLineOfMode.at(bits >> 62)};
  if (d.line > kPiece && (d.base_offset != 0 || d.start % (8 * d.line) >= d.line))
    throw Fault(
        fmt::format("wgmma's operand at {:#x} does not begin in the first line of a "
                    "swizzle pattern of {} bytes: a base offset is not modelled",
                    d.start, 8 * d.line));
  return d;
}

/// A product as one thread sees it: the rows of A and columns of B of its own sums.
struct Product {
  WgmmaShape shape;
  float* sums;
  ToFloat to_float;
  std::vector<std::uint16_t> a, b;  // when it was issued; (2, 16) and (columns / 4, 16)
};
using Group = std::vector<Product>;

struct Thread {
  Group open;
  std::deque<Group> groups;
  bool fenced = false;  // since the last wait
  std::size_t issued = 0;
  std::map<float*, std::vector<float>> sums;  // accumulators in use, as products left them
  std::vector<unsigned> copied;               // pieces, since the last show_to_wgmma

  bool uses(const float* sums_of, int columns) const {
    const auto in = [&](const Group& group) {
      for (const Product& product : group)
        if (product.sums == sums_of && product.shape.columns == columns) return true;
      return false;
    };
    for (const Group& group : groups)
      if (in(group)) return true;
    return in(open);
  }
};

struct BlockState {
  std::uint64_t block = 0;
  std::vector<Thread> threads;
  std::map<std::size_t, std::vector<WgmmaShape>> issued;  // by warpgroup, in order
  std::map<unsigned, std::size_t> hidden;  // piece of shared memory -> thread that has copied it
};

BlockState& state() {
  static BlockState instance;
  if (instance.block != blocks_started()) {
    instance = {};
    instance.block = blocks_started();
    instance.threads.resize(num_threads());
  }
  return instance;
}
Thread& me() {
  return state().threads[thread_number()];
}

/// Column 8 n + 2 t + i of this thread's c[n][i], in this order.
int column_of(int index) {
  return index / 2 * 8 + static_cast<int>(thread_number() % 4) * 2 + index % 2;
}
int row_of(int half) {
  const auto number = static_cast<int>(thread_number() % kWarpgroup);
  return number / kWarp * 16 + number % kWarp / 4 + 8 * half;
}

/// The numbers of an operand's lines (rows of A, columns of B), 16 each.
template <class LineOf>
std::vector<std::uint16_t> read_lines(const Descriptor& from, bool by_rows, int lines,
                                      const LineOf& line_of) {
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(lines * kDepth));
  const auto* memory = static_cast<const std::byte*>(dynamic_shared());
  const std::size_t end = dynamic_shared_bytes() + kWindow;
  for (int i = 0; i < lines; ++i)
    for (int k = 0; k < kDepth; ++k) {
      std::uint16_t& number = numbers[static_cast<std::size_t>(i * kDepth + k)];
      const unsigned address = from.address(by_rows, line_of(i), k);
      if (address < kWindow || address + sizeof number > end)
        throw Fault(fmt::format("wgmma reads shared memory at {:#x}, beyond the block's {} bytes",
                                address, dynamic_shared_bytes()));
      std::memcpy(&number, memory + (address - kWindow), sizeof number);
    }
  return numbers;
}
std::vector<std::uint16_t> read_a(const WgmmaShape& shape) {
  return read_lines(decode(shape.a), shape.a_by_rows, kRowsOfThread, row_of);
}
std::vector<std::uint16_t> read_b(const WgmmaShape& shape) {
  return read_lines(decode(shape.b), shape.b_by_rows, shape.columns / 4, column_of);
}

void require_shown(const WgmmaShape& shape) {
  const auto& hidden = state().hidden;
  if (hidden.empty()) return;
  const auto check = [&](const Descriptor& from, bool by_rows, int row) {
    for (int k = 0; k < kDepth; ++k) {
      const unsigned address = from.address(by_rows, row, k);
      const auto found = hidden.find(address / kPiece);
      if (found != hidden.end())
        throw Fault(
            fmt::format("wgmma reads what thread {} has copied to {:#x} and not shown to "
                        "the async proxy",
                        found->second, address));
    }
  };
  for (int half = 0; half < kRowsOfThread; ++half)
    check(decode(shape.a), shape.a_by_rows, row_of(half));
  for (int column = 0; column < shape.columns / 4; ++column)
    check(decode(shape.b), shape.b_by_rows, column_of(column));
}

/// All threads of a warpgroup issue the same products in the same order.
void require_agreement(const WgmmaShape& shape, std::size_t number) {
  if (num_threads() % kWarpgroup != 0)
    throw Fault(fmt::format("wgmma in a block of {} threads", num_threads()));
  std::vector<WgmmaShape>& issued = state().issued[thread_number() / kWarpgroup];
  if (number == issued.size()) issued.push_back(shape);
  if (issued[number] != shape)
    throw Fault(
        fmt::format("thread {} issues another product than its warpgroup", thread_number()));
}

void require_untouched(const std::vector<float>& expected, const float* sums) {
  if (std::memcmp(expected.data(), sums, expected.size() * sizeof(float)) != 0)
    throw Fault("accumulators were touched while wgmma ran");
}

void finish(Thread& thread, const Product& product) {
  const std::vector<std::uint16_t> a = read_a(product.shape);
  const std::vector<std::uint16_t> b = read_b(product.shape);
  if (a != product.a || b != product.b)
    throw Fault("operands in shared memory changed while wgmma ran");
  std::vector<float>& sums = thread.sums.at(product.sums);
  require_untouched(sums, product.sums);
  const auto value = [&](const std::vector<std::uint16_t>& from, int line, int k) {
    return product.to_float(from[static_cast<std::size_t>(line * kDepth + k)]);
  };
  for (int column = 0; column < product.shape.columns / 4; ++column) {
    for (int half = 0; half < kRowsOfThread; ++half) {
      float sum = 0.0F;
      for (int k = 0; k < kDepth; ++k) sum += value(a, half, k) * value(b, column, k);
      product.sums[column / 2 * 4 + 2 * half + column % 2] += sum;
    }
  }
  sums.assign(product.sums, product.sums + product.shape.columns / 2);
}

}  // namespace

unsigned shared_address(const void* shared) {
  const auto offset =
      static_cast<const std::byte*>(shared) - static_cast<const std::byte*>(dynamic_shared());
  return kWindow + static_cast<unsigned>(offset);
}

void wgmma(const WgmmaShape& shape, float* sums, float (*to_float)(std::uint16_t bits)) {
  Thread& thread = me();
  if (shape.columns < 8 || shape.columns > 256 || shape.columns % 8 != 0)
    throw Fault(fmt::format("wgmma of {} columns", shape.columns));
  require_agreement(shape, thread.issued++);
  if (thread.uses(sums, shape.columns)) {
    require_untouched(thread.sums.at(sums), sums);
  } else {
    if (!thread.fenced)
      throw Fault("wgmma without wgmma.fence after accumulators could be touched");
    thread.sums[sums].assign(sums, sums + shape.columns / 2);
  }
  require_shown(shape);
  thread.open.push_back({shape, sums, to_float, read_a(shape), read_b(shape)});
}

void wgmma_fence() {
  me().fenced = true;
}

void wgmma_commit() {
  Thread& thread = me();
  thread.groups.push_back(std::move(thread.open));
  thread.open.clear();
}

void wgmma_wait(std::size_t most_pending) {
  Thread& thread = me();
  for (; thread.groups.size() > most_pending; thread.groups.pop_front()) {
    for (const Product& product : thread.groups.front()) finish(thread, product);
    thread.fenced = false;
  }
}

void show_to_wgmma() {
  Thread& thread = me();
  for (const unsigned piece : thread.copied) {
    const auto found = state().hidden.find(piece);
    if (found != state().hidden.end() && found->second == thread_number())
      state().hidden.erase(found);
  }
  thread.copied.clear();
}

void note_copied(const void* shared) {
  const unsigned piece = shared_address(shared) / kPiece;
  state().hidden[piece] = thread_number();
  me().copied.push_back(piece);
}

void check_products_ended() {
  for (std::size_t i = 0; i < state().threads.size(); ++i) {
    const Thread& thread = state().threads[i];
    if (!thread.open.empty() || !thread.groups.empty())
      throw Fault(fmt::format("thread {} has left without waiting for its products", i));
    const auto issued = state().issued.find(i / kWarpgroup);
    if (issued != state().issued.end() && thread.issued != issued->second.size())
      throw Fault(fmt::format("thread {} has issued {} products, its warpgroup {}", i,
                              thread.issued, issued->second.size()));
  }
}

}  // namespace cuda_on_cpu

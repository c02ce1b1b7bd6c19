#include "cuda_on_cpu/async_copy.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <vector>

#include "cuda_on_cpu/block.hpp"
#include "cuda_on_cpu/wgmma.hpp"

namespace cuda_on_cpu {

namespace {

constexpr int kPoison = 0xff;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::size_t source_bytes;
};
using Group = std::vector<Copy>;

struct Pending {
  Group open;
  std::deque<Group> groups;
};

/// Copies of the running thread.
Pending& pending() {
  static std::vector<Pending> of_thread;
  static std::uint64_t block = 0;
  if (block != blocks_started()) {
    block = blocks_started();
    of_thread.assign(num_threads(), {});
  }
  return of_thread[thread_number()];
}

void finish(const Group& group) {
  for (const Copy& copy : group) {
    if (copy.source_bytes > 0) std::memcpy(copy.to, copy.from, copy.source_bytes);
    std::memset(static_cast<std::byte*>(copy.to) + copy.source_bytes, 0,
                copy.bytes - copy.source_bytes);
    note_copied(copy.to);
  }
}

}  // namespace

void copy_async(void* shared, const void* global, std::size_t bytes) {
  copy_async(shared, global, bytes, bytes);
}

void copy_async(void* shared, const void* global, std::size_t bytes, std::size_t source_bytes) {
  if (reinterpret_cast<std::uintptr_t>(shared) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % bytes != 0)
    throw Fault(fmt::format("an asynchronous copy of {} bytes that are not aligned to it", bytes));
  if (source_bytes > bytes)
    throw Fault(fmt::format("an asynchronous copy of {} bytes from {}", bytes, source_bytes));
  std::memset(shared, kPoison, bytes);
  pending().open.push_back({shared, global, bytes, source_bytes});
}

void commit_copies() {
  Pending& mine = pending();
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

void wait_for_copies_but(std::size_t most_pending) {
  Pending& mine = pending();
  for (; mine.groups.size() > most_pending; mine.groups.pop_front()) finish(mine.groups.front());
}

void wait_for_copies() {
  commit_copies();
  wait_for_copies_but(0);
}

}  // namespace cuda_on_cpu

#include "cpu_backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "attention/attention_layout.hpp"
#include "attention/operators.hpp"
#include "core/error.hpp"
#include "core/fresh_pages.hpp"
#include "device/loops.hpp"
#include "elementwise/operators.hpp"
#include "embeddings/operators.hpp"
#include "experts/operators.hpp"
#include "mixers/operators.hpp"
#include "norms/operators.hpp"
#include "products/operators.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kTouched = 2 << 20;  // a large page
constexpr std::int64_t kByteGrain = 4 * cpu::kElementGrain;

}  // namespace

std::string CpuBackend::name() const {
  return fmt::format("cpu {} {} thread{}", name_of(isa_), context_.num_threads,
                     context_.num_threads == 1 ? "" : "s");
}

void* CpuBackend::allocate(std::int64_t bytes) {
  const std::int64_t size = std::max(round_up(bytes, kPage), kPage);
  void* memory = std::aligned_alloc(kPage, static_cast<std::size_t>(size));
  if (memory == nullptr)
    throw IoError(fmt::format("cannot allocate {} bytes of host memory", size));
  // Here, not in a step; by the threads that will use it, each of which may have memory of its own.
  parallel_for(context_.num_threads, round_up(size, kTouched) / kTouched, 1,
               [&](Range range, int /*thread*/) {
                 const std::int64_t begin = range.begin * kTouched;
                 const std::int64_t end = std::min(range.end * kTouched, size);
                 touch_pages(static_cast<std::byte*>(memory) + begin,
                             static_cast<std::size_t>(end - begin));
               });
  return memory;
}

void CpuBackend::free(void* memory) noexcept {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc): of aligned_alloc
}

void CpuBackend::copy(void* to, const void* from, std::int64_t bytes) {
  parallel_for(context_.num_threads, bytes, kByteGrain, [&](Range range, int /*thread*/) {
    std::memcpy(static_cast<char*>(to) + range.begin, static_cast<const char*>(from) + range.begin,
                static_cast<std::size_t>(range.end - range.begin));
  });
}
void CpuBackend::copy_to_device(void* to, const void* from_host, std::int64_t bytes) {
  copy(to, from_host, bytes);
}
void CpuBackend::copy_to_host(void* to_host, const void* from, std::int64_t bytes) {
  copy(to_host, from, bytes);
}
void CpuBackend::zero(void* memory, std::int64_t bytes) {
  parallel_for(context_.num_threads, bytes, kByteGrain, [&](Range range, int /*thread*/) {
    std::memset(static_cast<char*>(memory) + range.begin, 0,
                static_cast<std::size_t>(range.end - range.begin));
  });
}

std::int64_t CpuBackend::scratch_bytes(const Operation& operation) {
  return std::visit(
      [this]<class Op>(const Op& op) -> std::int64_t {
        if constexpr (requires { cpu::scratch_bytes(context_, op); })
          return cpu::scratch_bytes(context_, op);
        else
          return 0;
      },
      operation);
}

void CpuBackend::set_scratch(void* memory, std::int64_t bytes) {
  require_invariant(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0,
                    "scratch is aligned to 64 bytes");
  context_.scratch = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

void CpuBackend::run(const Operation& operation) {
  std::visit([this](const auto& op) { cpu::run(context_, op); }, operation);
}

std::unique_ptr<Backend> make_cpu_backend(int num_threads, std::optional<CpuIsa> isa) {
  if (num_threads < 1)
    throw ConfigError(fmt::format("num_threads = {}: at least 1 thread computes", num_threads));
  const CpuIsa best = best_cpu_isa();
  const CpuIsa wanted = isa.value_or(best);
  if (wanted > best)
    throw ConfigError(fmt::format("this CPU lacks {}; it has {}", name_of(wanted), name_of(best)));
  return std::make_unique<CpuBackend>(num_threads, wanted);
}

}  // namespace meshplan::kernels

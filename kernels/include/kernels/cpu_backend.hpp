#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.hpp"

namespace meshplan::kernels {

/// Instruction sets that the kernels are compiled for, ascending: x86-64-v2 (SSE4.2), v3 (AVX2,
/// FMA), v4 (AVX-512 F, BW, CD, DQ, VL).
enum class CpuIsa { Sse4, Avx2, Avx512 };

/// The widest one that this CPU has, by its feature bits.
CpuIsa best_cpu_isa();

/// Computes on `num_threads` host threads (the caller is one of them); work is split in a way that
/// depends on sizes alone. Results of all operations except the three linear products are the same
/// bits for any number of threads.
/// @param isa  narrower than the CPU offers, for tests; it does not reach into the GEMM library
/// @throws ConfigError if num_threads < 1 or the CPU lacks `isa`
std::unique_ptr<Backend> make_cpu_backend(int num_threads, std::optional<CpuIsa> isa = {});

}  // namespace meshplan::kernels

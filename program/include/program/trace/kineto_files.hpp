// Traces as PyTorch's profiler (Kineto) writes them, a file a rank: what HolisticTraceAnalysis and
// tools like it read.
#pragma once

#include <string>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::program {

struct KinetoFile {
  int rank = 0;
  std::string text;
};

/// Kernels have the names of operations, those of communication behind "nccl:", copies from and to
/// the host behind "Memcpy"; a lane is a stream; each step is a ProfilerStep. Kernels are launched
/// as they begin: a trace of ours knows no launches. A single step, as predicted ones are, is
/// written twice, since statistics leave out the first.
/// @returns a file for each rank that has spans, by rank
std::vector<KinetoFile> to_kineto_files(const Trace& trace);

}  // namespace meshplan::program

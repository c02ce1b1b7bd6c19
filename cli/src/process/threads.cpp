#include "process/threads.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace meshplan::cli {
namespace {

struct FirstError {
  std::mutex mutex;
  std::size_t index = 0;
  std::exception_ptr error;

  void keep(std::size_t at, std::exception_ptr thrown) {
    const std::lock_guard lock(mutex);
    if (error && index <= at) return;
    index = at;
    error = std::move(thrown);
  }
};

void run_on(int num_threads, std::size_t count, const planner::ParallelFor::Body& body) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  FirstError first;
  const auto work = [&](int worker) {
    while (!stop) {
      const std::size_t index = next++;
      if (index >= count) return;
      try {
        body(index, worker);
      } catch (...) {
        first.keep(index, std::current_exception());
        stop = true;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int worker = 1; worker < num_threads; ++worker) threads.emplace_back(work, worker);
    } catch (const std::system_error&) {
      // The system gives no more: those that run do the work.
    }
    work(0);
  }
  if (first.error) std::rethrow_exception(first.error);
}

}  // namespace

planner::ParallelFor on_threads(int num_threads) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  constexpr int kMostThreads = 1024;  // beyond what any machine has; a system refuses more
  if (num_threads < 0 || num_threads > kMostThreads)
    throw ConfigError(
        fmt::format("--threads {}: expected 1 to {}, or 0 for as many as there are "
                    "cores",
                    num_threads, kMostThreads));
  // More would be slower, for each has an estimator of its own; the result is the same.
  const int threads = num_threads > 0 ? std::min(num_threads, cores) : cores;
  return {.num_workers = threads,
          .run = [threads](std::size_t count, const planner::ParallelFor::Body& body) {
            run_on(threads, count, body);
          }};
}

}  // namespace meshplan::cli

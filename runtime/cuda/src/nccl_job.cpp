#include <algorithm>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <thread>

#include "core/error.hpp"
#include "nccl_communicator.hpp"

namespace meshplan::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string words_of(ncclResult_t result, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  const std::string text = ncclGetErrorString(result);
  return detail == nullptr || *detail == '\0' ? text : fmt::format("{} ({})", text, detail);
}

}  // namespace

bool wait_for_device(NcclJob* job, WaitObserver* observer, std::optional<Seconds> limit,
                     const std::function<bool()>& done) {
  constexpr double kSpinSeconds = 2e-3;   // a step of a small model: do not give up the core
  constexpr double kNoticeSeconds = 0.1;  // then the watchdog should know that this rank waits
  const auto begin = Clock::now();
  bool told = false;
  bool result = true;
  try {
    while (!done()) {
      const double waited = seconds_since(begin);
      if (limit && waited >= limit->value) {
        result = false;
        break;
      }
      if (waited < kSpinSeconds) continue;
      if (job != nullptr) job->check();
      if (!told && observer != nullptr && waited > kNoticeSeconds) {
        observer->wait_begins(std::nullopt);
        told = true;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(waited < kNoticeSeconds ? 20 : 500));
    }
  } catch (...) {
    if (told) observer->wait_ends();
    throw;
  }
  if (told) observer->wait_ends();
  return result;
}

NcclJob::~NcclJob() {
  if (!members_.empty()) abort_all();
}

void NcclJob::complete(ncclResult_t started, const ncclComm_t& comm, const std::string& operation,
                       const std::string& group, const std::string& cause) {
  ncclResult_t state = started;
  const bool in_time = wait_for_device(nullptr, options_.observer, options_.setup_timeout, [&] {
    if (state == ncclInProgress && comm != nullptr) ncclCommGetAsyncError(comm, &state);
    return state != ncclInProgress;
  });
  if (in_time && state == ncclSuccess) return;
  const std::string what =
      in_time ? "NCCL: " + words_of(state, comm)
              : fmt::format("not all ranks of the group joined within {} s: {}; NCCL says '{}'",
                            options_.setup_timeout.value, cause, words_of(state, comm));
  const bool member = std::ranges::find(members_, comm, &Member::comm) != members_.end();
  if (comm != nullptr && !member) ncclCommAbort(comm);  // it was still being made
  abort_all();
  throw CommError(operation, group, std::nullopt, what);
}

void NcclJob::add(ncclComm_t comm, const std::string& group) {
  members_.push_back({comm, group});
}

void NcclJob::remove(ncclComm_t comm) noexcept {
  if (std::erase_if(members_, [&](const Member& one) { return one.comm == comm; }) == 0) return;
  if (std::uncaught_exceptions() > 0) {
    ncclCommAbort(comm);
    return;
  }
  ncclResult_t state = ncclCommFinalize(comm);
  const auto begin = Clock::now();
  while (state == ncclInProgress && seconds_since(begin) < 10.0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) break;
  }
  if (state == ncclSuccess)
    ncclCommDestroy(comm);
  else
    ncclCommAbort(comm);
}

void NcclJob::check() {
  for (const Member& one : members_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(one.comm, &state);
    if (asked == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) continue;
    const std::string what = "NCCL: " + words_of(asked == ncclSuccess ? state : asked, one.comm);
    const std::string group = one.group;  // abort_all forgets it
    abort_all();
    throw CommError("communication", group, std::nullopt, what);
  }
}

void NcclJob::give_up(const std::string& what) {
  abort_all();
  throw CommError("communication", "world", std::nullopt,
                  fmt::format("{} has not ended for {} s: a rank that it communicates with hangs "
                              "or is gone; all communicators were aborted",
                              what, options_.hang_timeout.value));
}

void NcclJob::abort_all() noexcept {
  aborted_ = true;
  for (const Member& one : members_) ncclCommAbort(one.comm);
  members_.clear();
}

}  // namespace meshplan::runtime::cuda

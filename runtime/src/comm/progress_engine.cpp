#include "comm/progress_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "comm/host_operation.hpp"
#include "core/index.hpp"
#include "os/quiet_thread.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_waited_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What to do between fruitless polls. Where ranks outnumber cores, the rank that could make
/// progress is perhaps not running: spinning only delays it.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}

  void reset() {
    idle_ = 0;
    nap_ns_ = kShortestNapNs;
  }
  /// @returns whether this wait has outlived plain spinning
  bool pause() {
    ++idle_;
    const int spins = oversubscribed_ ? kSpinsShared : kSpinsAlone;
    if (idle_ <= spins) return false;
    if (oversubscribed_ && idle_ > spins + kYields) {
      const timespec nap{0, nap_ns_};
      nanosleep(&nap, nullptr);
      nap_ns_ = std::min(nap_ns_ + nap_ns_ / kNapGrowth, kLongestNapNs);
    } else {
      sched_yield();
    }
    return true;
  }

 private:
  // Measured on 2 cores with 4 and 8 ranks: fewer spins cost latency, more cost the other ranks'
  // time.
  static constexpr int kSpinsShared = 100;
  static constexpr int kYields = 10;
  // Naps grow to a fraction of the time waited, so that they delay a wait by that fraction at most.
  // Long waits need long ones: Linux moves a rank to a core that idles only if it idles for longer
  // than its migration cost (0.5 ms), and a core that naps in between looks busy.
  static constexpr long kShortestNapNs = 20'000;
  static constexpr long kLongestNapNs = 1'000'000;
  static constexpr long kNapGrowth = 8;
  static constexpr int kSpinsAlone = 20'000;

  bool oversubscribed_;
  int idle_ = 0;
  long nap_ns_ = kShortestNapNs;
};

/// Asks for the shortest time slices, as sched_setattr(2) has it from Linux 6.12 on for threads of
/// ordinary priority: such a thread runs as soon as it wakes up. Otherwise it runs when the slice
/// of the thread that computes on the same core ends, some milliseconds later, and a collective has
/// several messages one after the other. A refusal (older kernels) costs time only.
void ask_for_short_slices() {
  struct {
    std::uint32_t size = 48;  // of this structure
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t slice_ns = 100'000;  // the least that Linux grants
    std::uint64_t deadline_ns = 0;
    std::uint64_t period_ns = 0;
  } attributes;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  syscall(SYS_sched_setattr, 0, &attributes, 0U);
}

/// Tells the observer about a wait, and about its end however it ends.
class ObservedWait {
 public:
  ObservedWait(WaitObserver* observer, const HostOperation& operation)
      : observer_(observer), operation_(operation) {}
  ~ObservedWait() {
    if (begun_) observer_->wait_ends();
  }
  ObservedWait(const ObservedWait&) = delete;
  ObservedWait& operator=(const ObservedWait&) = delete;

  void begin() {
    if (begun_ || observer_ == nullptr) return;
    begun_ = true;
    const auto peer = operation_.peer();
    const auto& world_ranks = operation_.group().world_ranks;
    observer_->wait_begins(peer ? std::optional(world_ranks[at(*peer)]) : std::nullopt);
  }

 private:
  WaitObserver* observer_;
  const HostOperation& operation_;
  bool begun_ = false;
};

}  // namespace

std::vector<std::byte> ScratchPool::take(std::size_t bytes) {
  if (bytes == 0) return {};
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->size() >= bytes && (best == free_.end() || it->size() < best->size())) best = it;
  if (best == free_.end()) return std::vector<std::byte>(bytes);
  std::vector<std::byte> buffer = std::move(*best);
  free_.erase(best);
  return buffer;
}

void ScratchPool::give_back(std::vector<std::byte> buffer) {
  if (!buffer.empty()) free_.push_back(std::move(buffer));
}

ProgressEngine::Lock ProgressEngine::lock() {
  wanted_.fetch_add(1, std::memory_order_relaxed);
  Lock lock(mutex_);
  wanted_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

void ProgressEngine::add(HostOperation& operation) {
  active_.push_back(&operation);
  if (sleeping_) work_.notify_one();
}

void ProgressEngine::remove(const HostOperation& operation) noexcept {
  std::erase(active_, &operation);
}

bool ProgressEngine::poll() {
  bool moved = false;
  for (HostOperation* operation : active_) moved |= operation->poll();
  if (moved) std::erase_if(active_, [](const HostOperation* o) { return o->finished(); });
  return moved;
}

/// A wait of the rank's thread: as long as it goes on, the progress thread rests.
class ProgressEngine::Waiting {
 public:
  explicit Waiting(ProgressEngine& engine) : engine_(engine) { ++engine_.waiting_; }
  ~Waiting() {
    --engine_.waiting_;
    if (engine_.sleeping_ && engine_.has_work()) engine_.work_.notify_one();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  ProgressEngine& engine_;
};

void ProgressEngine::wait(const HostOperation& operation, std::optional<Seconds> limit) {
  Lock held = lock();
  if (operation.finished()) return;
  const auto start = Clock::now();
  const Waiting waiting(*this);
  Backoff backoff(oversubscribed_);
  ObservedWait observed(observer_, operation);
  while (true) {
    const bool moved = poll();
    if (operation.finished()) return;
    if (moved) {
      backoff.reset();
      continue;
    }
    if (backoff.pause()) observed.begin();
    if (limit && seconds_waited_since(start) > limit->value)
      throw CommTimeout(operation.name(), operation.group().name, operation.peer(),
                        fmt::format("not done after {:g} s", limit->value));
  }
}

// ---------------------------------------------------------------- the progress thread

void ProgressEngine::progress_in_background(bool on) {
  if (!on) return stop_thread();
  if (thread_.joinable()) return;
  thread_ = start_without_signals([this] { run_in_background(); });
}

void ProgressEngine::stop_thread() {
  if (!thread_.joinable()) return;
  {
    const Lock held = lock();
    stopping_ = true;
    work_.notify_one();
  }
  thread_.join();
  stopping_ = false;
}

/// Each operation once; between two of them the rank's thread may go first.
bool ProgressEngine::poll_one_by_one(Lock& held) {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size() && !is_wanted(); ++i) moved |= active_[i]->poll();
  if (moved) std::erase_if(active_, [](const HostOperation* o) { return o->finished(); });
  if (!is_wanted()) return moved;
  held.unlock();
  while (is_wanted()) sched_yield();
  held.lock();
  return true;
}

void ProgressEngine::run_in_background() {
  ask_for_short_slices();
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  // On the rank's own core polling takes time from it; with another one in reach it need not nap.
  Backoff backoff(oversubscribed_ || CPU_COUNT(&cores) < 2);
  Lock held(mutex_);
  while (!stopping_) {
    if (!has_work()) {
      sleeping_ = true;
      work_.wait(held, [&] { return stopping_ || has_work(); });
      sleeping_ = false;
      backoff.reset();
      continue;
    }
    if (poll_one_by_one(held)) {
      backoff.reset();
      continue;
    }
    held.unlock();
    backoff.pause();
    held.lock();
  }
}

}  // namespace meshplan::runtime

// What the executor needs of the hardware that a rank computes on. Nothing above it knows whether
// lanes are streams of a GPU or turns of one host thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/index.hpp"
#include "kernels/backend.hpp"
#include "kernels/product_tuning.hpp"
#include "program/calibration/calibration.hpp"
#include "program/capture.hpp"
#include "program/program.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

class StagingMemory;

/// What a device is like, as far as issuing goes.
struct IssueRules {
  /// Each lane is a queue of the device: the host goes on as soon as work is queued. Otherwise an
  /// operation is done when its call returns, and only communications are in flight.
  bool queues = false;
  program::CommunicationDriver communications = program::CommunicationDriver::Host;
  bool capture = false;  // only with queues
  /// Communications of one lane that the host may have in flight at once, as far as none touches
  /// memory that another one writes. More than one gains only where something moves them while the
  /// host does not wait.
  int in_flight = 1;
};

/// Work that a device has recorded. It must go before the communicators whose work it holds: NCCL
/// does not end a communicator that a graph refers to.
class CapturedGraph {
 public:
  CapturedGraph() = default;
  virtual ~CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  /// Queues it on Lane::Compute.
  virtual void replay() = 0;
};

/// A rank's device: memory and kernels (the backend), and one queue for each lane of the program.
/// The backend's operations run on the queue of Lane::Compute. One host thread uses a device.
class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual kernels::Backend& backend() = 0;
  virtual IssueRules rules() const = 0;

  /// All ranks of `host_world`, communicating in this device's memory; null where `host_world`
  /// itself can. Collective over `host_world`, which must outlive the result.
  virtual std::unique_ptr<Communicator> make_world(Communicator& host_world) = 0;

  /// Chooses kernels of matrix products by their times, if the device was asked to; else null.
  virtual kernels::ProductTuning* product_tuning() { return nullptr; }

  /// What it is, where it is a GPU. Its peers are those of this machine that the process sees.
  virtual std::optional<program::GpuDescription> gpu() const { return std::nullopt; }
  /// Pinned host memory and the copies to and from it; null where device memory is host memory.
  virtual std::shared_ptr<StagingMemory> make_staging() { return nullptr; }

  /// The queue of a lane, as Communicator::queue_on takes it; null without queues.
  virtual void* queue(program::Lane lane) = 0;

  /// Issue::Kind SetMark and WaitMark. Marks are numbered from 0 and set again in every step.
  virtual void set_mark(int mark, program::Lane lane) = 0;
  virtual void wait_mark(int mark, program::Lane lane) = 0;

  /// Copies to device memory on the queue of `lane`; `from` may change when it returns.
  virtual void upload(void* to, const void* from, std::int64_t bytes, program::Lane lane) = 0;

  /// From here to end_capture, what is queued is recorded and not run.
  virtual void begin_capture() = 0;
  /// What was recorded, queued once. The device must outlive it.
  virtual std::unique_ptr<CapturedGraph> end_capture() = 0;

  /// The host waits until all queues are empty. @throws CommError if a communication failed
  virtual void synchronize() = 0;

  /// Takes the time at which `lane` gets here. Stamps are numbered from 0.
  virtual void stamp(int number, program::Lane lane) = 0;
  /// Seconds of the host's monotonic clock; after synchronize().
  virtual double stamp_seconds(int number) const = 0;

  /// Names what is issued between the two, for profilers.
  virtual void push_range(const char* name) { static_cast<void>(name); }
  virtual void pop_range() {}

  /// How much nobody holds of the memory that the backend allocates; by default the host's.
  /// The largest number where that is not known.
  virtual std::int64_t free_bytes() const;

  /// Memory of the host that queues copy to and from while others compute. @see Arena
  virtual void* allocate_host(std::int64_t bytes) { return backend().allocate(bytes); }
  virtual void free_host(void* memory) noexcept { backend().free(memory); }
  /// Copies on the queue of `lane`, from either kind of memory to either.
  virtual void copy(void* to, const void* from, std::int64_t bytes, program::Lane lane) {
    static_cast<void>(lane);
    backend().copy(to, from, bytes);
  }
};

/// Host memory and host threads: an operation is done when its call returns.
class HostDevice final : public Device {
 public:
  /// @param backend  must outlive the device
  explicit HostDevice(kernels::Backend& backend) : backend_(backend) {}

  kernels::Backend& backend() override { return backend_; }
  IssueRules rules() const override { return {}; }
  std::unique_ptr<Communicator> make_world(Communicator& /*host_world*/) override {
    return nullptr;
  }
  void* queue(program::Lane /*lane*/) override { return nullptr; }
  void set_mark(int mark, program::Lane lane) override;
  void wait_mark(int mark, program::Lane lane) override;
  void upload(void* to, const void* from, std::int64_t bytes, program::Lane lane) override;
  void begin_capture() override;
  std::unique_ptr<CapturedGraph> end_capture() override;
  void synchronize() override { backend_.synchronize(); }
  void stamp(int number, program::Lane lane) override;
  double stamp_seconds(int number) const override { return stamps_[at(number)]; }

 private:
  kernels::Backend& backend_;
  std::vector<double> stamps_;
};

/// Seconds of the monotonic clock, which all processes of a host share.
double monotonic_seconds();

}  // namespace meshplan::runtime

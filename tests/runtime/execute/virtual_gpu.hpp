// A device with queues whose clock is a sum: each operation costs what its signature says, a launch
// costs more by itself than in a graph. Computes nothing.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::test {

/// Seconds that the virtual GPU takes.
struct VirtualCosts {
  double launch_in_graph = 1e-6;
  double launch = 3e-6;
  double seconds_per_copied_byte = 1e-12;  // within the device
  double seconds_per_host_byte = 4e-11;    // to and from the host
  double seconds_per_flop = 1e-12;         // of a linear layer
};

class VirtualBackend;

class VirtualGpu final : public runtime::Device {
 public:
  VirtualGpu(const VirtualCosts& costs, bool capture);
  ~VirtualGpu() override;

  void spend(double seconds);
  double launch() const { return capturing_ ? costs_.launch_in_graph : costs_.launch; }
  const VirtualCosts& costs() const { return costs_; }
  int graphs_replayed() const { return replayed_; }

  kernels::Backend& backend() override;
  runtime::IssueRules rules() const override {
    return {.queues = true,
            .communications = program::CommunicationDriver::Device,
            .capture = capture_};
  }
  std::unique_ptr<runtime::Communicator> make_world(runtime::Communicator& /*host*/) override {
    return nullptr;
  }
  std::optional<program::GpuDescription> gpu() const override {
    return program::GpuDescription{.name = "virtual", .capability = "9.0"};
  }
  std::shared_ptr<runtime::StagingMemory> make_staging() override;
  void* queue(program::Lane /*lane*/) override { return nullptr; }
  void set_mark(int /*mark*/, program::Lane /*lane*/) override {}
  void wait_mark(int /*mark*/, program::Lane /*lane*/) override {}
  void upload(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/,
              program::Lane /*lane*/) override {}
  void begin_capture() override;
  std::unique_ptr<runtime::CapturedGraph> end_capture() override;
  void replay(double captured);
  void synchronize() override {}
  void stamp(int number, program::Lane lane) override;
  double stamp_seconds(int number) const override;

 private:
  VirtualCosts costs_;
  bool capture_;
  std::unique_ptr<VirtualBackend> backend_;
  double now_ = 0;
  bool capturing_ = false;
  double captured_ = 0;
  std::vector<double> stamps_;
  int replayed_ = 0;
};

}  // namespace meshplan::test

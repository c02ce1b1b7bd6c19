#include "runtime/measure/machine_watch.hpp"

#include <utility>

#include "measure/host_load.hpp"

namespace meshplan::runtime {
namespace {

constexpr Seconds kReferenceTime{0.02};

program::MachineSpeed reference(ReferenceProduct* product, Communicator& world,
                                const JobLayout& layout) {
  program::MachineSpeed speed;
  if (product != nullptr) measure_reference(*product, world, layout, kReferenceTime, speed);
  return speed;
}

}  // namespace

MachineWatch::MachineWatch(Communicator& world, const JobLayout& layout,
                           std::unique_ptr<ReferenceProduct> product)
    : world_(world),
      layout_(layout),
      product_(std::move(product)),
      before_(reference(product_.get(), world, layout)),
      load_(std::make_unique<HostLoad>(layout)) {}

MachineWatch::~MachineWatch() = default;

program::MachineSpeed MachineWatch::cores() {
  program::MachineSpeed speed;
  load_->measure(world_, speed);
  return speed;
}

program::MachineSpeed MachineWatch::finish() {
  const program::MachineSpeed load = cores();  // before what this measures itself
  program::MachineSpeed speed = reference(product_.get(), world_, layout_);
  speed.reference_s = (before_.reference_s + speed.reference_s) / 2;
  speed.other_cores = load.other_cores;
  speed.cores = load.cores;
  speed.ranks_on_host = load.ranks_on_host;
  return speed;
}

}  // namespace meshplan::runtime

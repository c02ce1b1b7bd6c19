#include "runtime/measure/reference_product.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/index.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kFeatures = 128;

}  // namespace

ReferenceProduct::ReferenceProduct(std::unique_ptr<kernels::Backend> backend)
    : backend_(std::move(backend)),
      x_(kTokens * kFeatures, 0.5F),
      weight_(kFeatures * kFeatures, 0.25F),
      y_(kTokens * kFeatures) {
  if (const std::int64_t bytes = backend_->scratch_bytes(product()); bytes > 0) {
    scratch_ = backend_->allocate(bytes);
    backend_->set_scratch(scratch_, bytes);
  }
  run();  // the library makes its kernel
}

ReferenceProduct::~ReferenceProduct() {
  if (scratch_ != nullptr) backend_->free(scratch_);
}

kernels::LinearForward ReferenceProduct::product() {
  return {.shape = {.tokens = kTokens, .in_features = kFeatures, .out_features = kFeatures},
          .dtype = DType::F32,
          .x = x_.data(),
          .x_stride = kFeatures,
          .weight = weight_.data(),
          .weight_stride = kFeatures,
          .y = y_.data(),
          .y_stride = kFeatures};
}

void ReferenceProduct::run() {
  backend_->run(product());
}

double ReferenceProduct::seconds() {
  run();
  const double begin = monotonic_seconds();
  run();
  const double seconds = monotonic_seconds() - begin;
  sum_s_ += seconds;
  ++calls_;
  return seconds;
}

double ReferenceProduct::take_mean() {
  const double mean = calls_ > 0 ? sum_s_ / calls_ : 0;
  sum_s_ = 0;
  calls_ = 0;
  return mean;
}

double ReferenceProduct::mean_seconds(Seconds time) {
  run();
  const double begin = monotonic_seconds();
  double now = begin;
  int calls = 0;
  do {
    run();
    ++calls;
    now = monotonic_seconds();
  } while (now - begin < time.value);
  return (now - begin) / calls;
}

void measure_reference(ReferenceProduct& product, Communicator& world, const JobLayout& layout,
                       Seconds time, program::MachineSpeed& speed) {
  const std::vector<int> ranks = layout.ranks_on(layout.machine());
  const int cores = layout.cores_of_machine[at(layout.machine())];
  const auto own = std::ranges::find(ranks, layout.rank) - ranks.begin();
  world.barrier().wait();
  double figures[2] = {0, 0};  // sum of seconds, ranks that measured
  if (own < cores) {
    figures[0] = product.mean_seconds(time);
    figures[1] = 1;
  } else {  // a rank that waits in a collective would use a core
    std::this_thread::sleep_for(std::chrono::duration<double>(time.value));
  }
  world.all_reduce({figures, 2, DType::F64}, {figures, 2, DType::F64}, ReduceOp::Sum).wait();
  speed.reference_s = figures[0] / figures[1];
  speed.reference_ranks = 1;
  for (int machine = 0; machine < layout.num_machines(); ++machine)
    speed.reference_ranks =
        std::max(speed.reference_ranks, std::min(static_cast<int>(layout.ranks_on(machine).size()),
                                                 layout.cores_of_machine[at(machine)]));
}

}  // namespace meshplan::runtime

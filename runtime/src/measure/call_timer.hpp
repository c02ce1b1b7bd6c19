// How long a call of a backend takes on a device, as in a step: without the host's part where the
// device has queues.
#pragma once

#include <functional>
#include <vector>

#include "core/units.hpp"
#include "measure/sampling.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/measure/reference_product.hpp"

namespace meshplan::runtime {

struct TimedCall {
  std::function<void()>
      call;                // issues the work once; each time to other operands if it has several
  int distinct = 1;        // operands that it goes round
  bool capturable = true;  // its sizes and addresses never change
};

class CallTimer {
 public:
  /// @param device  must outlive the timer
  explicit CallTimer(Device& device) : device_(device) {}

  /// Seconds of one call, measured for about `budget` and at least 5 times, after a warm-up. On a
  /// host device each is one call by the host's clock. On a device with queues each is the mean of
  /// as many calls as take half a millisecond (64 at most), between two stamps of the device; they
  /// are replayed as a graph where the device captures, because steps are.
  std::vector<double> time(const TimedCall& timed, Seconds budget);

  /// The same with evidence of what else ran, at least `fewest` times: on a host device what the
  /// kernel gave of the thread's core to others, and `reference` before and after.
  /// @param reference  null: none
  std::vector<TimedSample> sample(const TimedCall& timed, Seconds budget, int fewest,
                                  ReferenceProduct* reference);

 private:
  std::vector<TimedSample> on_host(const TimedCall& timed, Seconds budget, int fewest,
                                   ReferenceProduct* reference);
  std::vector<double> on_queues(const TimedCall& timed, Seconds budget);
  double between_stamps(const std::function<void()>& work);

  Device& device_;
};

}  // namespace meshplan::runtime

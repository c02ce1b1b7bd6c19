#include "checks/races.hpp"

#include <fmt/format.h>

#include "checks/order.hpp"
#include "memory/accesses.hpp"

namespace meshplan::program {

std::optional<std::string> race_error(const Program& program) {
  const Order order(program);
  Accesses accesses(program);
  Footprint touched;
  std::optional<std::string> error;
  for (int index = 0; index < static_cast<int>(program.instances.size()) && !error; ++index) {
    const OperationInstance& instance = program.instances[at(index)];
    footprint(program, instance, touched);
    const auto lane = static_cast<std::size_t>(operation_of(program, instance).lane);
    accesses.touch(index, lane, touched, [&](int other, std::size_t) {
      if (error || order.is_before(other, index)) return;
      error = fmt::format(
          "stage {}: {} (instance {}) touches memory of {} (instance {}) and does not wait for it",
          program.role.stage, text_of(program, instance), index,
          text_of(program, program.instances[at(other)]), other);
    });
  }
  return error;
}

}  // namespace meshplan::program

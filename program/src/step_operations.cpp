#include "step_operations.hpp"

#include <array>
#include <span>

#include "core/hash.hpp"

namespace meshplan::program {

void append_step_operation(Program& program, Operation operation) {
  OperationInstance instance;
  instance.operation = {.index = static_cast<int>(program.step_operations.size())};
  instance.id = instance_id(std::nullopt, std::nullopt, operation.name);
  program.step_operations.push_back(std::move(operation));
  program.instances.push_back(instance);
}

std::uint64_t instance_id(std::optional<int> task, std::optional<int> layer,
                          std::string_view name) {
  constexpr std::uint64_t kJsonSafe = (std::uint64_t{1} << 53) - 1;
  const std::array<std::int64_t, 2> place = {task.value_or(-1), layer.value_or(-1)};
  return content_hash(std::as_bytes(std::span(place)), content_hash(name)) & kJsonSafe;
}

Operation flat_all_reduce(std::string name, Lane lane, Group group, Region region, FlatRange range,
                          std::optional<int> bucket) {
  const DType dtype = region == Region::Scalars ? DType::F64 : DType::F32;
  return {.name = std::move(name),
          .phase = Phase::Reduce,
          .lane = lane,
          .work = FlatCollectiveOp{.collective = {.collective = Collective::AllReduce,
                                                  .group = group,
                                                  .dtype = dtype,
                                                  .elements = {.count = range.size()}},
                                   .region = region,
                                   .range = range,
                                   .bucket = bucket}};
}

}  // namespace meshplan::program

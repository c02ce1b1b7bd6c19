#include "copied_heads.hpp"

#include "core/index.hpp"
#include "program/shard_layout.hpp"
#include "step_operations.hpp"

namespace meshplan::program {

std::vector<Operation> copied_head_sums(const Program& program, int bucket, Region region) {
  std::vector<Operation> sums;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.expert || !parameter.shard_dim || parameter.bucket != bucket) continue;
    for (const CopiedRange& held : copied_ranges(parameter, program.plan.parallel.tp))
      if (held.copies > 1)
        sums.push_back(flat_all_reduce(
            parameter.name + ".copied_heads.all_reduce", Lane::Tp, Group::KvCopies, region,
            {parameter.offset + held.range.begin, parameter.offset + held.range.end}, bucket));
  }
  return sums;
}

}  // namespace meshplan::program

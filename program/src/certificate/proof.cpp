#include "program/certificate/proof.hpp"

#include "checks/program_errors.hpp"
#include "core/error.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::program {

ProgramProof prove_programs(const Plan& plan) {
  ProgramProof proof{.stages = plan.parallel.pp};
  std::vector<Program> programs;
  try {
    programs = lower_all(plan);
  } catch (const ConfigError& too_long) {
    proof.left_out = too_long.what();
    return proof;
  } catch (const InvariantError& unsound) {
    proof.errors = {unsound.what()};
    return proof;
  }
  for (const Program& program : programs)
    proof.operations += static_cast<std::int64_t>(program.instances.size());
  proof.errors = program_errors(programs);
  return proof;
}

}  // namespace meshplan::program

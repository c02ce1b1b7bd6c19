#include "runtime/certify/certify.hpp"

#include "certify/certify_twin.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::uint64_t kFirstSeed = 7, kSecondSeed = 8;

bool chooses_experts(const program::Plan& plan) {
  return plan.model.moe && plan.model.moe->top_k < plan.model.moe->num_experts;
}

/// The same on all ranks: rank 0 knows.
bool all_know(bool known_by_first, Communicator& world) {
  std::int32_t value = known_by_first ? 1 : 0;
  world.broadcast({&value, 1, DType::I32}, 0).wait();
  return value != 0;
}

program::TwinResult certify_with_seeds(const program::Twin& twin, Communicator& world,
                                       kernels::Backend& backend) {
  program::TwinResult result = certify_twin(twin, kFirstSeed, world, backend);
  if (!chooses_experts(twin.plan) || all_know(result.agrees(), world)) return result;
  result = certify_twin(twin, kSecondSeed, world, backend);
  result.seeds.insert(result.seeds.begin(), kFirstSeed);
  return result;
}

}  // namespace

std::vector<program::TwinResult> certify(std::span<const program::Twin> twins, Communicator& world,
                                         kernels::Backend& backend,
                                         const std::function<void(std::size_t)>& on_twin) {
  std::vector<program::TwinResult> results;
  std::size_t done = 0;
  for (const program::Twin& twin : twins) {
    program::TwinResult result = certify_with_seeds(twin, world, backend);
    if (world.rank() == 0) results.push_back(std::move(result));
    on_twin(++done);
  }
  return results;
}

}  // namespace meshplan::runtime

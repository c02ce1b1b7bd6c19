#include "runtime/certify/certify.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "certify/certify_twin.hpp"
#include "runtime/guard/status_board.hpp"

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

/// A second seed may decide near ties of routers, but not what must be the same bits.
bool is_final(const program::TwinResult& result) {
  return result.agrees() ||
         std::ranges::any_of(result.compared, [](const program::Compared& compared) {
           return program::is_exact(compared) && !compared.agrees();
         });
}

program::TwinResult certify_with_seeds(const program::Twin& twin, const TwinJob& job,
                                       TwinGroups& groups) {
  program::TwinResult result = certify_twin(twin, kFirstSeed, job, groups);
  if (!chooses_experts(twin.plan) || all_know(is_final(result), job.world)) return result;
  result = certify_twin(twin, kSecondSeed, job, groups);
  result.seeds.insert(result.seeds.begin(), kFirstSeed);
  return result;
}

}  // namespace

std::vector<program::TwinResult> certify(std::span<const program::Twin> twins, const TwinJob& job,
                                         const std::function<void(std::size_t)>& on_twin) {
  std::vector<program::TwinResult> results;
  std::size_t done = 0;
  TwinGroups groups(job.world);
  for (const program::Twin& twin : twins) {
    if (job.status != nullptr) job.status->set_context(fmt::format("twin {}", done + 1));
    program::TwinResult result = certify_with_seeds(twin, job, groups);
    if (job.world.rank() == 0) results.push_back(std::move(result));
    on_twin(++done);
  }
  return results;
}

}  // namespace meshplan::runtime

#include "execute/tokens_ahead.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::runtime {

std::vector<std::int32_t> with_tokens_ahead(const program::Plan& plan,
                                            const std::vector<std::int32_t>& rows,
                                            std::int32_t beyond) {
  const std::int64_t length = plan.workload.seq_len;
  const std::int64_t tokens = plan.tokens_per_microbatch();
  require_invariant(std::ssize(rows) % tokens == 0, "a batch of another size than the plan's");
  std::vector<std::int32_t> all;
  all.reserve(rows.size() * static_cast<std::size_t>(1 + plan.model.mtp_layers));
  for (auto batch = rows.begin(); batch != rows.end(); batch += tokens)
    for (std::int64_t ahead = 0; ahead <= plan.model.mtp_layers; ++ahead)
      for (auto sequence = batch; sequence != batch + tokens; sequence += length) {
        all.insert(all.end(), sequence + std::min(ahead, length), sequence + length);
        all.insert(all.end(), static_cast<std::size_t>(std::min(ahead, length)), beyond);
      }
  return all;
}

}  // namespace meshplan::runtime

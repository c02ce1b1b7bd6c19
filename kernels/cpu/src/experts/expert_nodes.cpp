// Exchanges of tokens by node: which nodes a token goes to, and what these must know of it.
#include <algorithm>

#include "device/threads.hpp"
#include "experts/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const NodeChoices& op) {
  const int held = op.experts / op.nodes;
  const int most = std::min(op.top_k, op.nodes);
  parallel_for(context.num_threads, op.tokens, kRowGrain, [&](Range tokens, int /*thread*/) {
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      std::int32_t* first = op.node_choices + t * most;
      std::int32_t* end = first;
      for (int k = 0; k < op.top_k; ++k) {
        const std::int32_t expert = op.choices[t * op.top_k + k];
        if (expert < 0) continue;
        const std::int32_t node = expert / held;
        if (std::find(first, end, node) == end) *end++ = node;
      }
      std::fill(end, first + most, -1);
    }
  });
}

void run(const Context& context, const NodeRoutingForward& op) {
  const int held = op.experts / op.nodes;
  const int most = std::min(op.top_k, op.nodes);
  parallel_for(context.num_threads, op.tokens * most, kRowGrain, [&](Range rows, int /*thread*/) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int32_t choice = op.choice_of_row[row];
      if (choice < 0) continue;
      const std::int64_t t = choice / most;
      const std::int32_t first = op.node_choices[choice] * held;
      for (int k = 0; k < op.top_k; ++k) {
        const std::int32_t expert = op.choices[t * op.top_k + k];
        const bool here = expert >= first && expert < first + held;
        op.row_choices[row * op.top_k + k] = here ? expert - first : -1;
        op.row_probabilities[row * op.top_k + k] = here ? op.probabilities[t * op.top_k + k] : 0.0F;
      }
    }
  });
}

void run(const Context& context, const NodeRoutingBackward& op) {
  const int held = op.experts / op.nodes;
  const int most = std::min(op.top_k, op.nodes);
  parallel_for(context.num_threads, op.tokens, kRowGrain, [&](Range tokens, int /*thread*/) {
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t)
      for (int k = 0; k < op.top_k; ++k) {
        const std::int32_t expert = op.choices[t * op.top_k + k];
        float gradient = 0.0F;
        for (int m = 0; m < most && expert >= 0; ++m)
          if (op.node_choices[t * most + m] == expert / held)
            gradient = op.drow_probabilities[op.row_of_choice[t * most + m] * op.top_k + k];
        op.dprobabilities[t * op.top_k + k] = gradient;
      }
  });
}

}  // namespace meshplan::kernels::cpu

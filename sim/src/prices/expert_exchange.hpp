// Seconds of the kernels that carry experts' rows: one copy of a token's row to each rank that
// holds some of its experts, across nodes one to each node and from there inside it, and back as
// sums.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/prices/measured_works.hpp"

namespace meshplan::sim {

/// SMs that a kernel takes by default; 0 = as many as the links need. DeepEP: deep_ep/buffer.py,
/// Buffer.num_sms; HybridEP: Megatron-LM, core/transformer/transformer_config.py,
/// moe_hybridep_num_sms.
double default_exchange_sms(ExchangeKernels kernels);

/// The slowest of what the SMs move, the links inside the domain and those of each level outside,
/// after a start. Formulas and their constants: docs/cost_model.md, "Experts".
/// @param cluster  with_operator_speeds()
/// @param placement  of the ranks that take part
double exchange_seconds(const ExchangeWork& work, const GroupPlacement& placement,
                        const Cluster& cluster,
                        const OperatorConstants& constants = operator_constants());

}  // namespace meshplan::sim

#include "sim/prices/operator_constants.hpp"

#include "core/error.hpp"

namespace meshplan::sim {

const std::vector<NamedMember<OperatorConstants>>& operator_constant_members() {
  using C = OperatorConstants;
  static const std::vector<NamedMember<C>> kMembers{
      {"product_ampere", &C::product_ampere},
      {"product_ada", &C::product_ada},
      {"product_hopper", &C::product_hopper},
      {"product_blackwell", &C::product_blackwell},
      {"fp8_ada", &C::fp8_ada},
      {"fp8_hopper", &C::fp8_hopper},
      {"fp8_blackwell", &C::fp8_blackwell},
      {"fp8_block_ada", &C::fp8_block_ada},
      {"fp8_block_hopper", &C::fp8_block_hopper},
      {"fp8_block_blackwell", &C::fp8_block_blackwell},
      {"fp4_blackwell", &C::fp4_blackwell},
      {"half_tile_ampere", &C::half_tile_ampere},
      {"half_tile", &C::half_tile},
      {"attention_ampere", &C::attention_ampere},
      {"attention_ada", &C::attention_ada},
      {"attention_hopper", &C::attention_hopper},
      {"attention_blackwell", &C::attention_blackwell},
      {"exponentials", &C::exponentials},
      {"attention_block_us", &C::attention_block_us},
      {"window_keys", &C::window_keys},
      {"linear_memory", &C::linear_memory},
      {"linear_flops", &C::linear_flops},
      {"linear_step_us", &C::linear_step_us},
      {"convolution_clocks", &C::convolution_clocks},
      {"links_ampere", &C::links_ampere},
      {"links_hopper", &C::links_hopper},
      {"links_blackwell", &C::links_blackwell},
      {"nvls_hopper", &C::nvls_hopper},
      {"nvls_blackwell", &C::nvls_blackwell},
      {"own_part", &C::own_part},
      {"all_to_all", &C::all_to_all},
      {"simple_us", &C::simple_us},
      {"nvls_us", &C::nvls_us},
      {"kernel_us", &C::kernel_us},
      {"permuted_bytes", &C::permuted_bytes},
      {"permuted_clocks", &C::permuted_clocks},
      {"deepep_us", &C::deepep_us},
      {"deepep_row_us", &C::deepep_row_us},
      {"deepep_row_kb_us", &C::deepep_row_kb_us},
      {"deepep_token_kb_us", &C::deepep_token_kb_us},
      {"deepep_relay_kb_us", &C::deepep_relay_kb_us},
      {"deepep_sum_kb_us", &C::deepep_sum_kb_us},
      {"deepep_notify_us", &C::deepep_notify_us},
      {"deepep_links", &C::deepep_links},
      {"exchange_wire", &C::exchange_wire},
      {"two_sided_token_us", &C::two_sided_token_us},
      {"prepared_token_us", &C::prepared_token_us},
  };
  return kMembers;
}

std::vector<ConstantRecord> parse_operator_constants(std::string_view text,
                                                     const std::string& file) {
  return parse_records(text, file, names_of(operator_constant_members()));
}

const std::vector<ConstantRecord>& operator_records() {
  static const auto kRecords =
      parse_operator_constants(embedded_constants("operators"), "operators.json");
  return kRecords;
}

const OperatorConstants& operator_constants() {
  static const OperatorConstants kConstants =
      values_of(operator_records(), operator_constant_members());
  return kConstants;
}

ArchitectureRates rates_of(Architecture architecture, const OperatorConstants& c) {
  switch (architecture) {
    case Architecture::Ampere:
      return {
          .product = c.product_ampere, .attention = c.attention_ampere, .links = c.links_ampere};
    case Architecture::BlackwellRtx:  // none was timed; both multiply from registers
    case Architecture::Ada:
      return {.product = c.product_ada,
              .fp8 = c.fp8_ada,
              .fp8_block = c.fp8_block_ada,
              .half_tile = c.half_tile,
              .attention = c.attention_ada,
              .links = 1};  // PCI Express, which presets hold as it is reached
    case Architecture::Hopper:
      return {.product = c.product_hopper,
              .fp8 = c.fp8_hopper,
              .fp8_block = c.fp8_block_hopper,
              .half_tile = c.half_tile,
              .attention = c.attention_hopper,
              .links = c.links_hopper,
              .nvls = c.nvls_hopper};
    case Architecture::Blackwell:
      return {.product = c.product_blackwell,
              .fp8 = c.fp8_blackwell,
              .fp8_block = c.fp8_block_blackwell,
              .fp4 = c.fp4_blackwell,
              .half_tile = c.half_tile,
              .attention = c.attention_blackwell,
              .links = c.links_blackwell,
              .nvls = c.nvls_blackwell};
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return {};
  }
  throw InvariantError("unknown architecture");
}

bool is_measured(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
    case Architecture::Ada:
    case Architecture::Hopper:
    case Architecture::Blackwell:
      return true;
    case Architecture::BlackwellRtx:
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return false;
  }
  throw InvariantError("unknown architecture");
}

// Data sheets: A100 SXM 400 W and 312 TFLOP/s, L40S 350 and 362, H100 SXM 700 and 989.4; of
// Blackwell the geometric mean of B200, 1,000 and 2,250, and GB200, 1,200 and 2,450.
double measured_watts_per_tflop(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 400.0 / 312;
    case Architecture::BlackwellRtx:
    case Architecture::Ada:
      return 350.0 / 362;
    case Architecture::Hopper:
      return 700.0 / 989.4;
    case Architecture::Blackwell:
      return 0.4666;
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return 0;
  }
  throw InvariantError("unknown architecture");
}

}  // namespace meshplan::sim

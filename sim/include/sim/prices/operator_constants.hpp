// What measured operators say and no data sheet does: parts of the peaks that products, attention
// and links reach, by architecture, and a few overheads. Fitted on tables of single operators only
// (`meshplan validate --operators DIR --fit FILE`); sim/constants/operators.json holds each with
// unit, range and source. What is different in a training step is in fitted_constants.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/prices/constant_records.hpp"

namespace meshplan::sim {

/// Values by name. What each means stands in the file.
struct OperatorConstants {
  // Part of the peak that large products reach: 16 bit, FP8 per tensor, FP8 by block, 4 bit.
  double product_ampere = 0.88;
  double product_ada = 0.63;
  double product_hopper = 0.83;
  double product_blackwell = 0.74;
  double fp8_ada = 0.6;
  double fp8_hopper = 0.75;
  double fp8_blackwell = 0.65;
  double fp8_block_ada = 0.35;
  double fp8_block_hopper = 0.61;
  double fp8_block_blackwell = 0.7;
  double fp4_blackwell = 0.45;
  // Rate of a tile of half the size, over a whole one's.
  double half_tile_ampere = 0.87;
  double half_tile = 0.98;  // from Ada on
  // Part of the peak of the matrix work inside fused attention.
  double attention_ampere = 0.53;
  double attention_ada = 0.48;
  double attention_hopper = 0.7;
  double attention_blackwell = 0.76;
  double exponentials = 0.68;       // part of their time that nothing hides
  double attention_block_us = 3.7;  // start and end of a thread block
  double window_keys = 270;         // that a query computes beside those of its window
  // Linear attention and the short convolution before it.
  double linear_memory = 0.85;      // part of the memory bandwidth that their kernels reach
  double linear_flops = 512;        // of the products of small tiles, an SM and clock
  double linear_step_us = 1;        // from a chunk's state to the next
  double convolution_clocks = 0.3;  // of an SM, an element of four taps
  // Part of the innermost level's rate that large collectives reach.
  double links_ampere = 0.91;
  double links_hopper = 0.95;
  double links_blackwell = 0.92;
  double nvls_hopper = 0.78;  // that switches sum at
  double nvls_blackwell = 0.64;
  double own_part = 0.45;    // time of a byte that stays on its rank, over one that travels
  double all_to_all = 0.95;  // of the rate of rings, inside a domain
  double simple_us = 17;     // start of a collective by NCCL's protocol for large messages
  double nvls_us = 65;       // start of one that switches sum
  double kernel_us = 4.8;    // a kernel besides its work
  // Around the experts, of each element that is routed.
  double permuted_bytes = 4.6;
  double permuted_clocks = 0.53;
  // Exchange of experts' rows. DeepEP's times are those of one SM.
  double deepep_us = 41;              // start and end
  double deepep_row_us = 0.13;        // of a row between two ranks
  double deepep_row_kb_us = 0.019;    // of its bytes, each 1,000
  double deepep_token_kb_us = 0.095;  // of 1,000 bytes of a token, which is read or summed once
  double deepep_relay_kb_us = 0.07;   // of 1,000 bytes that a rank passes on to its node
  double deepep_sum_kb_us = 0.16;     // of 1,000 bytes that it adds up for another node
  double deepep_notify_us = 100;      // counts across nodes, before the rows
  double deepep_links = 0.8;          // of the rate that rings reach inside a domain, by queues
  double exchange_wire = 0.95;        // of the rate that links between nodes reach
  double two_sided_token_us = 0.045;
  double prepared_token_us = 0.007;  // counting and sorting of its experts
};

const std::vector<NamedMember<OperatorConstants>>& operator_constant_members();
/// @throws ConfigError for an unknown, missing or repeated name, or a value outside its range
std::vector<ConstantRecord> parse_operator_constants(std::string_view text,
                                                     const std::string& file);
/// The file that is compiled in.
const std::vector<ConstantRecord>& operator_records();
const OperatorConstants& operator_constants();

/// The constants of one architecture: parts of the peaks, 0 where it has no such unit.
struct ArchitectureRates {
  double product = 0;
  double fp8 = 0;
  double fp8_block = 0;
  double fp4 = 0;
  double half_tile = 1;
  double attention = 0;
  double links = 0;
  double nvls = 0;
};
ArchitectureRates rates_of(Architecture architecture, const OperatorConstants& constants);

/// Were operators of this generation timed, so that its rates are fitted? What a GPU of another one
/// reaches is assumed: its file says it, or a relative's rates stand in.
bool is_measured(Architecture architecture);

/// Watts of board power for each TFLOP/s (16 bit) of the boards that the constants were measured
/// on; 0 if none was. A board of the same silicon with less has a lower clock at load.
double measured_watts_per_tflop(Architecture architecture);

}  // namespace meshplan::sim

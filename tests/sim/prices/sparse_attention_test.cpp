#include "prices/attention/sparse_attention.hpp"

#include <catch2/catch.hpp>

#include "prices/device_speeds.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

/// A sequence whose queries see up to 4 keys of at most 16; 8 heads, an indexer of 2 heads of 32.
SparseAttentionWork few_keys() {
  return {.batch = 3,
          .seq = 16,
          .heads = 8,
          .head = 192,
          .value_head = 128,
          .selected = 4,
          .index_heads = 2,
          .index_head = 32};
}

}  // namespace

// 1 + 2 + 3 + 4 keys of the first four queries, 4 of each of the other twelve.
TEST_CASE("Sparse attention computes selected keys, its indexer all", "[sim][sparse_attention]") {
  SparseAttentionWork work = few_keys();
  const double all = 3 * 136, selected = 3 * (10 + 12 * 4);
  CHECK(causal_pairs(work) == all);
  CHECK(selected_pairs(work) == selected);
  CHECK(sparse_attention_flops(work) == 8 * selected * 2 * (192 + 128));
  CHECK(indexer_flops(work) == all * 2 * 2 * 32);
  CHECK(selection_bytes(work) == 12 * all + 4 * selected);
  work.backward = true;
  CHECK(sparse_attention_flops(work) == 2.5 * 8 * selected * 2 * (192 + 128));
  CHECK(indexer_flops(work) == selected * (3 * 2 * 2 * 32 + 2 * 8 * 192));
  CHECK(selection_bytes(work) == 4 * selected);
}

TEST_CASE("All keys selected are causal attention", "[sim][sparse_attention]") {
  SparseAttentionWork work = few_keys();
  work.selected = 1000;
  CHECK(selected_pairs(work) == causal_pairs(work));
}

// DeepSeek-V3.2: 2,048 of up to 131,072 keys, an indexer of 64 heads of 128 in FP8. Its scores of
// all pairs are then what takes longest, and twice the tokens take up to four times as long.
TEST_CASE("Long sequences spend their time in the indexer", "[sim][sparse_attention]") {
  const Cluster h100 = with_operator_speeds(load_data_sheet("dgx-h100"), operator_constants());
  const double peak = peak_flop_per_s(h100, DType::BF16), fp8 = float8_peak_flop_per_s(h100);
  SparseAttentionWork work{.batch = 1,
                           .seq = 131072,
                           .heads = 128,
                           .head = 576,
                           .value_head = 512,
                           .selected = 2048,
                           .index_heads = 64,
                           .index_head = 128};
  const double whole = sparse_attention_seconds(work, peak, fp8, h100);
  CHECK(whole > indexer_flops(work) / fp8 + sparse_attention_flops(work) / peak);
  CHECK(indexer_flops(work) > sparse_attention_flops(work));
  SparseAttentionWork dense = work;
  dense.selected = dense.seq;
  dense.index_heads = 0;
  CHECK(whole < sparse_attention_seconds(dense, peak, fp8, h100));
  SparseAttentionWork half = work;
  half.seq /= 2;
  const double ratio = whole / sparse_attention_seconds(half, peak, fp8, h100);
  CHECK(ratio > 2);
  CHECK(ratio < 4);
}

}  // namespace meshplan::sim

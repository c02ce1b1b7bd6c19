// Compression of the sum over the ranks with equal parameters (docs/data_parallel.md): what a
// bucket's bytes look like on their way.
//
// int8 numbers have scales of their own, so none can be added up on the way. Each rank sums one
// part of a bucket: the ranks exchange compressed parts (all-to-all), sum, and gather the sums,
// compressed again ("compressed all-reduce" of Tang et al. 2021, section 4.2). With ZeRO the owner
// of a part needs no more than its sum. Chosen elements (top-k) differ from rank to rank: every
// rank gathers all and adds them up (Lin et al. 2018); with ZeRO an owner gets those of its part.
#pragma once

#include <cstdint>
#include <vector>

#include "program/zero/zero.hpp"

namespace meshplan::program {

/// Elements that a parameter starts on: kAlignment bytes, or the blocks of compression, so that
/// none spans two parameters and ranks that hold the same parameter compress it alike.
std::int64_t parameter_alignment(const Plan& plan);

/// Equal parts that a bucket divides into: of ZeRO's owners, and of those that sum int8.
int bucket_parts(const Plan& plan, const Bucket& bucket);

/// Are gradients of this bucket summed compressed?
bool is_compressed(const Plan& plan, const Bucket& bucket);

/// The bytes of one bucket in a slot of Region::CompressedGradients: `parts` records to send (and
/// to gather in place), then, if they are exchanged, as many received ones. A record holds int8
/// numbers, then their scales; or indices, then values.
struct CompressedLayout {
  Group group = Group::DpCp;      // ranks that the sum is over
  bool scatters = false;          // each rank has the sum of its own part, not of all
  bool by_parts = false;          // a record is a part for its rank, else all for every rank
  int block = 0;                  // elements of a scale, or that a choice is made among
  int keep = 0;                   // TopK: of each block
  int parts = 1;                  // ranks of the group
  std::int64_t compressed = 0;    // gradients that each rank compresses
  std::int64_t elements = 0;      // gradients of one record
  std::int64_t blocks = 0;        // of one record
  std::int64_t second_begin = 0;  // bytes: of the second array of a record
  std::int64_t record_bytes = 0;  // a multiple of kAlignment
  std::int64_t sent_bytes() const { return parts * record_bytes; }
  std::int64_t received_begin() const { return sent_bytes(); }
  std::int64_t slot_bytes() const { return (by_parts ? 2 : 1) * sent_bytes(); }
};
CompressedLayout compressed_layout(const Program& program, int bucket);

/// Gradients whose blocks are counted from the first one.
struct BlockRun {
  FlatRange range;
  std::int64_t first_block = 0;  // of the record
  bool operator==(const BlockRun&) const = default;
};
/// The runs of a record that holds the gradients `record` of a bucket. Blocks end where rows begin
/// or end that several tp ranks hold alike: so all of these lose the same.
std::vector<BlockRun> block_runs(const Program& program, int bucket, FlatRange record);

/// ZeRO-2 and 3: is this bucket compressed micro-batch by micro-batch, where it is not reduced yet?
bool compresses_units(const Plan& plan, const Bucket& bucket);

/// fp16: are errors kept as they were before a step that may be skipped?
bool keeps_settled_errors(const Plan& plan);

/// The rank's number among those that sum a bucket.
int part_of(const Bucket& bucket, const ShardPlace& place);

/// The gradients of a bucket that the rank compresses: with hybrid sharding those that it owns.
FlatRange compressed_range(const Bucket& bucket, const ShardPlace& place);

/// Does a rank keep what compressing its sums of this bucket loses?
bool keeps_sum_errors(const Plan& plan, const Bucket& bucket);

/// Where what a rank loses of a bucket begins in Region::CompressionErrors and, of the sums that it
/// makes, in Region::SumErrors: elements. For the number of buckets, the size of the region.
std::int64_t errors_begin(const Program& program, int bucket);
std::int64_t sum_errors_begin(const Program& program, int bucket);

/// What the rank keeps errors of as number `replica` among those that sum it, and where they lie.
std::vector<HeldRun> error_runs(const Program& program, const ShardPlace& place, int replica);
/// The rank's numbers among those that sum its buckets, ascending.
std::vector<int> error_replicas(const Program& program, const ShardPlace& place);

/// The sums that a rank makes and where their errors lie in Region::SumErrors.
std::vector<HeldRun> sum_error_runs(const Program& program, const ShardPlace& place);

}  // namespace meshplan::program

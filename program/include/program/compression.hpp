// Compression of the sum over the ranks with equal parameters (docs/data_parallel.md): what a
// bucket's bytes look like on their way.
//
// int8 numbers have scales of their own, so none can be added up on the way. Each rank sums one
// part of a bucket: the ranks exchange compressed parts (all-to-all), sum, and gather the sums,
// compressed again ("compressed all-reduce" of Tang et al. 2021, section 4.2). With ZeRO the owner
// of a part needs no more than its sum. Chosen elements (top-k) differ from rank to rank: every
// rank gathers all and adds them up (Lin et al. 2018).
#pragma once

#include <cstdint>
#include <vector>

#include "program/zero.hpp"

namespace meshplan::program {

/// Elements that a parameter starts on: kAlignment bytes, or the blocks of compression, so that
/// none spans two parameters and ranks that hold the same parameter compress it alike.
std::int64_t parameter_alignment(const Plan& plan);

/// Ranks that a bucket divides into equally many parts for: ZeRO's owners, or those that sum int8.
int bucket_parts(const Plan& plan, const Bucket& bucket);

/// Are gradients of this bucket summed compressed?
bool is_compressed(const Plan& plan, const Bucket& bucket);

/// The bytes of one bucket in a slot of Region::CompressedGradients: `parts` records to send (and
/// to gather in place), then, for int8, as many received ones. A record holds int8 numbers, then
/// their scales; or indices, then values.
struct CompressedLayout {
  int block = 0;                  // elements of a scale, or that a choice is made among
  int keep = 0;                   // TopK: of each block
  int parts = 1;                  // ranks of the bucket's group
  std::int64_t elements = 0;      // gradients of one record: a part (Int8) or the bucket (TopK)
  std::int64_t blocks = 0;        // of one record
  std::int64_t second_begin = 0;  // bytes: of the second array of a record
  std::int64_t record_bytes = 0;  // a multiple of kAlignment
  std::int64_t sent_bytes() const { return parts * record_bytes; }
  std::int64_t received_begin() const { return sent_bytes(); }
};
CompressedLayout compressed_layout(const Plan& plan, const Bucket& bucket);

/// The rank's number among those that sum a bucket.
int part_of(const Bucket& bucket, const ShardPlace& place);

/// Where the part of a bucket that a rank sums begins in Region::SumErrors: elements.
std::int64_t sum_errors_begin(const Program& program, int bucket);

/// Does this plan keep what compressing the sums loses?
bool keeps_sum_errors(const Plan& plan);

/// The parts that a rank sums and where they lie in Region::SumErrors.
std::vector<HeldRun> sum_error_runs(const Program& program, const ShardPlace& place);

}  // namespace meshplan::program

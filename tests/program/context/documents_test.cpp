#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "program/checks/check.hpp"
#include "program/context/context.hpp"
#include "program/context/document_context.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::program::test {
namespace {

PackedSequence sequence_of(const std::vector<std::int64_t>& lengths, std::int64_t multiple = 1) {
  PackedSequence sequence;
  for (const std::int64_t length : lengths)
    sequence.append(length, (length + multiple - 1) / multiple * multiple);
  return sequence;
}

Plan packed_plan(int cp, ContextMethod method, std::int64_t seq_len) {
  models::ModelSpec model = llama_style();
  model.num_kv_heads = 8;
  Plan plan = make_plan(model, {.cp = cp}, 1);
  plan.workload.seq_len = seq_len;
  plan.workload.global_batch_size = 4;
  plan.workload.documents = {.packed = true, .end_of_document = 0};
  plan.context_parallel = method;
  return plan;
}

struct Filled {
  std::vector<std::int64_t> held;
  std::vector<std::int32_t> positions, key_ranges, order;
};
Filled filled(const Plan& plan, int rank, const std::vector<PackedSequence>& sequences) {
  const BatchSizes sizes = batch_sizes(plan);
  Filled f{.positions = std::vector<std::int32_t>(static_cast<std::size_t>(sizes.positions)),
           .key_ranges = std::vector<std::int32_t>(static_cast<std::size_t>(sizes.key_ranges)),
           .order = std::vector<std::int32_t>(static_cast<std::size_t>(sizes.order))};
  f.held = fill_document_arrays(plan, rank, sequences, {f.positions, f.key_ranges, f.order});
  return f;
}

/// The pairs of query and key that must be seen: the same document, and no later key.
std::int64_t all_pairs(const PackedSequence& sequence, std::int64_t seq_len) {
  std::int64_t pairs = seq_len;  // every position sees itself
  for (int d = 0; d < sequence.num_documents(); ++d) {
    const std::int64_t length = sequence.document(d).length;
    pairs += length * (length - 1) / 2;
  }
  return pairs;
}

}  // namespace

TEST_CASE("documents are packed best fit, the longest first", "[program][documents]") {
  // 7 opens a sequence, 5 another one; 4 fits the second best, 3 the first, 2 opens a third.
  const std::vector<std::int64_t> lengths = {5, 3, 7, 2, 4};
  const Packing packing = pack(lengths, 10, 1);
  REQUIRE(packing.sequences.size() == 3);
  CHECK(packing.documents[0] == std::vector<std::int64_t>{2, 1});
  CHECK(packing.documents[1] == std::vector<std::int64_t>{0, 4});
  CHECK(packing.documents[2] == std::vector<std::int64_t>{3});
  CHECK(packing.sequences[0].valid == std::vector<std::int64_t>{0, 7, 10});
  CHECK(packing.sequences[1].padded == std::vector<std::int64_t>{0, 5, 9});
  CHECK(packing.sequences[1].loss_tokens() == 7);
  // Filled up to 4: 7 takes 8, 5 and 4 together 12.
  const Packing padded = pack(lengths, 12, 4);
  CHECK(padded.sequences[0].valid == std::vector<std::int64_t>{0, 7, 11});
  CHECK(padded.sequences[0].padded == std::vector<std::int64_t>{0, 8, 12});
  CHECK(padded.sequences[1].document(1) == Document{.begin = 8, .length = 3, .padded = 4});
}

TEST_CASE("a document that fills its sequence is cut as a plain sequence", "[program][documents]") {
  for (const int cp : {1, 2, 4}) {
    const DocumentShards shards = shard_documents(sequence_of({64}), 64, cp, 0);
    for (int rank = 0; rank < cp; ++rank) {
      const ContextShard plain = context_shard(64, cp, rank);
      std::vector<std::int64_t> positions, expected;
      for (const TokenRun& run : shards[static_cast<std::size_t>(rank)])
        for (std::int64_t i = run.begin; i < run.end; ++i) positions.push_back(i);
      for (std::int64_t i = 0; i < plain.length; ++i) expected.push_back(plain.position(i));
      CHECK(positions == expected);
    }
  }
}

TEST_CASE("every token of packed documents is on one rank, as many on each",
          "[program][documents]") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const int cp = 1 << trial % 4;
    const std::int64_t seq_len = 16 * cp;
    std::vector<std::int64_t> lengths;
    for (std::int64_t left = seq_len; left > 0 && lengths.size() < 12;) {
      lengths.push_back(1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(left)));
      left -= lengths.back();
    }
    const PackedSequence sequence = sequence_of(lengths);
    for (const std::int64_t most : {std::int64_t{0}, std::int64_t{16}, std::int64_t{20}}) {
      std::vector<int> seen(static_cast<std::size_t>(seq_len), 0);
      for (const std::vector<TokenRun>& runs : shard_documents(sequence, seq_len, cp, most)) {
        std::int64_t tokens = 0, last = 0;
        for (const TokenRun& run : runs) {
          CHECK(run.begin >= last);
          last = run.end;
          tokens += run.end - run.begin;
          for (std::int64_t i = run.begin; i < run.end; ++i) ++seen[static_cast<std::size_t>(i)];
        }
        CHECK(tokens == seq_len / cp);
      }
      CHECK(std::ranges::count(seen, 1) == seq_len);
    }
  }
}

TEST_CASE("documents shorter than the most tokens of a rank stay whole", "[program][documents]") {
  // Two of 32 over two ranks each, four of 16 on one each: all ranks have 32 tokens.
  const PackedSequence sequence = sequence_of({32, 32, 16, 16, 16, 16});
  const DocumentShards shards = shard_documents(sequence, 128, 4, 16);
  for (int d = 0; d < sequence.num_documents(); ++d) {
    const Document document = sequence.document(d);
    int ranks = 0;
    for (const std::vector<TokenRun>& runs : shards)
      ranks += std::ranges::any_of(runs, [&](const TokenRun& run) {
        return run.begin >= document.begin && run.begin < document.begin + document.padded;
      });
    CHECK(ranks == document.length / 16);
  }
}

TEST_CASE("the listed key ranges are the documents' pairs, for any division of the tokens",
          "[program][documents]") {
  const std::vector<PackedSequence> sequences = {sequence_of({19, 1, 7, 30}),
                                                 sequence_of({6, 6, 9}, 4)};
  for (const auto& [method, most] : {std::pair{ContextMethod::AllGather, 0},
                                     {ContextMethod::AllGather, 20},
                                     {ContextMethod::Ring, 0},
                                     {ContextMethod::Ring, 20},
                                     {ContextMethod::Ulysses, 0}}) {
    Plan plan = packed_plan(4, method, 64);
    plan.micro_batch_size = 2;
    plan.max_tokens_per_rank = most;
    REQUIRE(check(plan).empty());
    std::int64_t pairs = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Filled f = filled(plan, rank, sequences);
      for (std::size_t i = 0; i < f.key_ranges.size(); i += 2) {
        CHECK(f.key_ranges[i] <= f.key_ranges[i + 1]);
        pairs += f.key_ranges[i + 1] - f.key_ranges[i];
      }
      const std::size_t rows = f.order.size() / 2;
      for (std::size_t place = 0; place < rows; ++place)
        CHECK(f.order[rows + static_cast<std::size_t>(f.order[place])] ==
              static_cast<std::int32_t>(place));
    }
    const std::int64_t expected = all_pairs(sequences[0], 64) + all_pairs(sequences[1], 64);
    CHECK(pairs == (method == ContextMethod::Ulysses ? 4 : 1) * expected);
  }
  // By hand: the second rank of two holds tokens 1 and 2 of a document of 4; of one of 2, whose
  // first halves round to nothing, the first on the way back; and half of the padding.
  const Plan plan = packed_plan(2, ContextMethod::AllGather, 8);
  const Filled f = filled(plan, 1, {sequence_of({4, 2})});
  CHECK(f.held == std::vector<std::int64_t>{1, 2, 4, 7});
  CHECK(f.positions == std::vector<std::int32_t>{1, 2, 0, 0});
  CHECK(f.key_ranges == std::vector<std::int32_t>{0, 2, 0, 3, 4, 5, 7, 8});
}

TEST_CASE("packed attention is priced by the documents that are expected", "[program][documents]") {
  Plan plan = packed_plan(1, ContextMethod::AllGather, 64);
  plan.workload.documents.expected_lengths = {16};  // four of them fill a sequence
  CHECK(expected_pairs(plan).front().pairs == 4 * 16 * 17 / 2.0);
  for (const ContextMethod method : {ContextMethod::AllGather, ContextMethod::Ring}) {
    Plan divided = packed_plan(4, method, 64);
    divided.workload.documents.expected_lengths = {16};
    double pairs = 0;
    for (const DocumentPairs& entry : expected_pairs(divided)) pairs += entry.pairs;
    CHECK(pairs == 4 * 16 * 17 / 2.0 / 4);  // zig-zag divides 16 tokens evenly
  }
  // One that fills sequences without end: each is whole. The sample does not grow with it.
  plan.workload.documents.expected_lengths = {2147483647};
  CHECK(expected_pairs(plan).front().pairs == 64 * 65 / 2.0);
  CHECK(expected_sequences(plan.workload.documents.expected_lengths, 64, 1).size() == 256);
  // Uniform in 1 .. S: S / mean documents of mean pairs (S + 1)(S + 2) / 6 (sum of n (n + 1) / 2).
  plan.workload.seq_len = 1024;
  plan.workload.documents.expected_lengths.clear();
  const double uniform = 1026.0 / 3 * 1024;  // tokens of full sequences * pairs / tokens
  CHECK(expected_pairs(plan).front().pairs <= uniform);
  CHECK(expected_pairs(plan).front().pairs >= 0.75 * uniform);  // less padding
}

TEST_CASE("packed documents that cannot be are refused", "[program][documents]") {
  const auto refusal = [](auto change) {
    Plan plan = packed_plan(4, ContextMethod::AllGather, 64);
    change(plan);
    const std::vector<Violation> violations = check(plan);
    REQUIRE(violations.size() == 1);
    CHECK(violations[0].rule == "documents");
    return violations[0].message;
  };
  using Catch::Contains;
  CHECK_THAT(refusal([](Plan& p) { p.workload.documents.end_of_document.reset(); }),
             Contains("end_of_document (null)"));
  CHECK_THAT(refusal([](Plan& p) { p.workload.documents.end_of_document = 1 << 20; }),
             Contains("nearest: "));
  CHECK_THAT(refusal([](Plan& p) { p.workload.documents.pad_multiple = 65; }),
             Contains("nearest: 64"));
  CHECK_THAT(refusal([](Plan& p) { p.max_tokens_per_rank = 15; }), Contains("nearest: 16"));
  CHECK_THAT(refusal([](Plan& p) {
               p.max_tokens_per_rank = 16;
               p.parallel.cp = 1;
             }),
             Contains("needs cp > 1"));
  CHECK_THAT(refusal([](Plan& p) {
               p.max_tokens_per_rank = 16;
               p.workload.documents.packed = false;
             }),
             Contains("pack documents"));
  CHECK_THAT(refusal([](Plan& p) {
               p.max_tokens_per_rank = 16;
               p.context_parallel = ContextMethod::Ulysses;
             }),
             Contains("'all_gather' or 'ring'"));
}

}  // namespace meshplan::program::test

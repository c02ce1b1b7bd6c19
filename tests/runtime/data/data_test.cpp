#include "runtime/data/data.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

/// A file that lives as long as its test.
class DataFile {
 public:
  DataFile(const std::string& name, const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("meshplan-data-test-" + std::to_string(::getpid()) + "-" + name)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~DataFile() { std::filesystem::remove(path_); }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Tokens 0, 1, 2, ... so that a token tells its place.
std::string counting_u16(int tokens) {
  std::string bytes;
  for (int i = 0; i < tokens; ++i) {
    bytes.push_back(static_cast<char>(i % 256));
    bytes.push_back(static_cast<char>(i / 256));
  }
  return bytes;
}

program::Plan make_plan(int dp = 1, int micro_batch = 1) {
  program::Plan plan;
  plan.model.vocab_size = 65536;
  plan.workload.seq_len = 4;
  plan.workload.global_batch_size = 8;
  plan.parallel.dp = dp;
  plan.micro_batch_size = micro_batch;
  return plan;
}

std::vector<std::int64_t> order_of(const Permutation& permutation, std::int64_t size) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(permutation(i));
  return order;
}

std::string message_of(const std::string& path) {
  try {
    const TokenFile file(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

std::string load_message(const std::string& path, const program::Plan& plan) {
  try {
    const TokenFile file(path);
    const Sampler sampler(file, {0, file.size()}, plan, 1);
    StepBatch batch;
    sampler.load(0, {}, batch);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

}  // namespace

TEST_CASE("a permutation visits every index once, for any size", "[runtime][data]") {
  std::vector<std::int64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {255, 256, 257, 1023, 1024, 1025, 65535, 65536, 65537, 100003});
  for (const std::int64_t size : sizes) {
    INFO("size " << size);
    std::vector<std::int64_t> order = order_of(Permutation(size, 5), size);
    std::ranges::sort(order);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    CHECK(order == all);
  }
}

TEST_CASE("each seed gives another permutation, a seed always the same", "[runtime][data]") {
  constexpr std::int64_t kSize = 1000;
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    orders.insert(order_of(Permutation(kSize, seed), kSize));
  CHECK(orders.size() == 50);
  CHECK(order_of(Permutation(kSize, 7), kSize) == order_of(Permutation(kSize, 7), kSize));
}

TEST_CASE("a permutation of 1000 leaves few indices in place", "[runtime][data]") {
  // Fixed points of a random permutation are Poisson with mean 1: more than 10 has odds of 1e-8.
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const auto order = order_of(Permutation(1000, seed), 1000);
    int fixed = 0;
    for (std::size_t i = 0; i < order.size(); ++i) fixed += order[i] == static_cast<int>(i);
    CHECK(fixed <= 10);
  }
}

TEST_CASE("a file holds bytes, 16-bit or 32-bit tokens by its name", "[runtime][data]") {
  const DataFile text("a.txt", "Az\xff");
  const TokenFile bytes(text.path());
  REQUIRE(bytes.size() == 3);
  CHECK(bytes[0] == 65);
  CHECK(bytes[1] == 122);
  CHECK(bytes[2] == 255);  // not -1

  const std::string raw("\x01\x02\xff\xff", 4);
  for (const char* name : {"a.u16", "a.bin"}) {
    const DataFile file(name, raw);
    const TokenFile words(file.path());
    REQUIRE(words.size() == 2);
    CHECK(words[0] == 0x0201);
    CHECK(words[1] == 0xffff);
  }
  const DataFile file("a.u32", std::string("\x01\x02\x03\x00", 4));
  const TokenFile wide(file.path());
  REQUIRE(wide.size() == 1);
  CHECK(wide[0] == 0x030201);
}

TEST_CASE("every epoch sees every sequence once, in another order", "[runtime][data]") {
  const DataFile data("epoch.u16", counting_u16(4 * 37 + 1));
  const TokenFile file(data.path());
  const program::Plan plan = make_plan();
  const Sampler sampler(file, {0, file.size()}, plan, 3);
  REQUIRE(sampler.num_sequences() == 37);
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < 37; ++i) order.push_back(sampler.sequence(epoch * 37 + i));
    orders.insert(order);
    CHECK(std::set(order.begin(), order.end()).size() == 37);
    CHECK(std::ranges::max(order) == 36);
  }
  CHECK(orders.size() == 4);
}

TEST_CASE("the last sequence needs one token more, its target", "[runtime][data]") {
  const DataFile exact("exact.u16", counting_u16(4 * 8 + 1));
  const DataFile short_by_one("short.u16", counting_u16(4 * 8));
  const program::Plan plan = make_plan();
  CHECK(load_message(exact.path(), plan) == "no ConfigError");
  CHECK_THAT(load_message(short_by_one.path(), plan),
             Contains("32 tokens") && Contains("hold 7 sequences of seq_len 4") &&
                 Contains("global batch of 8") && Contains("at least 33 tokens") &&
                 Contains("global_batch_size <= 7") && Contains(short_by_one.path()));
}

TEST_CASE("the ranks of cp share each sequence, and targets cross their borders",
          "[runtime][data]") {
  const DataFile data("context.u16", counting_u16(16 * 8 + 1));
  const TokenFile file(data.path());
  program::Plan plan = make_plan(1, 2);
  plan.workload.seq_len = 16;
  StepBatch whole;
  Sampler(file, {0, file.size()}, plan, 9).load(0, {}, whole);
  plan.parallel.cp = 2;
  const Sampler sampler(file, {0, file.size()}, plan, 9);
  const std::vector<std::vector<std::size_t>> positions = {{0, 1, 2, 3, 12, 13, 14, 15},
                                                           {4, 5, 6, 7, 8, 9, 10, 11}};
  for (int rank = 0; rank < 2; ++rank) {
    StepBatch batch;
    sampler.load(0, {.cp = rank}, batch);
    REQUIRE(2 * batch.ids.size() == whole.ids.size());
    REQUIRE(2 * batch.targets.size() == whole.targets.size());
    for (std::size_t row = 0; row < batch.ids.size(); ++row) {
      const std::size_t at = row / 8 * 16 + positions[static_cast<std::size_t>(rank)][row % 8];
      CHECK(batch.ids[row] == whole.ids[at]);
      CHECK(batch.targets[row] == batch.ids[row] + 1);
    }
  }
}

TEST_CASE("a step trains on the same sequences whatever the plan", "[runtime][data]") {
  const DataFile data("plans.u16", counting_u16(4 * 100 + 1));
  const TokenFile file(data.path());
  // Steps 11 to 13 cross an epoch: 100 sequences are 12.5 steps of 8.
  for (const std::int64_t step : {0, 1, 11, 12, 13}) {
    std::multiset<std::int64_t> expected;
    for (const int dp : {1, 2, 4})
      for (const int micro_batch : {1, 2}) {
        INFO("step " << step << " dp " << dp << " micro-batch " << micro_batch);
        const program::Plan plan = make_plan(dp, micro_batch);
        const Sampler sampler(file, {0, file.size()}, plan, 9);
        std::multiset<std::int64_t> seen;
        for (int dp_rank = 0; dp_rank < dp; ++dp_rank) {
          StepBatch batch;
          sampler.load(step, {.dp = dp_rank}, batch);
          REQUIRE(batch.ids.size() == static_cast<std::size_t>(4 * 8 / dp));
          REQUIRE(batch.targets.size() == batch.ids.size());
          for (std::size_t row = 0; row < batch.ids.size(); row += 4) {
            const std::int32_t first = batch.ids[row];
            CHECK(first % 4 == 0);
            for (int t = 0; t < 4; ++t) {
              CHECK(batch.ids[row + static_cast<std::size_t>(t)] == first + t);
              CHECK(batch.targets[row + static_cast<std::size_t>(t)] == first + t + 1);
            }
            seen.insert(first / 4);
          }
        }
        CHECK(seen.size() == 8);
        if (expected.empty()) expected = seen;
        CHECK(seen == expected);
      }
  }
}

namespace {

/// First tokens of the sequences that all ranks of a step have targets for; each sequence has
/// targets for all of its tokens or for none.
std::vector<std::int64_t> trained_in(const Sampler& sampler, const program::Plan& plan,
                                     std::int64_t step) {
  std::vector<std::int64_t> firsts;
  const std::int64_t seq_len = plan.workload.seq_len;
  for (int dp = 0; dp < plan.parallel.dp; ++dp) {
    StepBatch batch;
    sampler.load(step, {.dp = dp}, batch);
    CHECK(batch.loss_tokens == 0);  // all tokens of the global batch, whatever is empty
    CHECK(std::ssize(batch.ids) ==
          plan.num_microbatches() * plan.micro_batch_size * plan.workload.seq_len);
    REQUIRE(batch.targets.size() == batch.ids.size());
    for (auto row = 0L; row < std::ssize(batch.ids); row += seq_len) {
      const auto targets = std::span(batch.targets).subspan(row, seq_len);
      const auto ignored = std::ranges::count(targets, -1);
      CHECK((ignored == 0 || ignored == seq_len));
      if (ignored > 0) continue;
      firsts.push_back(batch.ids[row]);
      CHECK(targets.back() == firsts.back() + seq_len);
    }
  }
  return firsts;
}

}  // namespace

TEST_CASE("replicas that take unequal numbers of sequences see each once", "[runtime][data]") {
  constexpr int kSequences = 96;  // an epoch is 12 steps of 8
  const DataFile data("uneven.u16", counting_u16(4 * kSequences + 1));
  const TokenFile file(data.path());
  std::vector<std::vector<std::int64_t>> expected;
  for (const int dp : {1, 4, 3, 5, 7})
    for (const int micro_batch : {1, 2, 3}) {
      program::Plan plan = make_plan(dp, micro_batch);
      if (micro_batch * (dp - 1) >= plan.workload.global_batch_size) continue;  // one is idle
      plan.uneven_batch = true;
      INFO("dp " << dp << " micro-batch " << micro_batch);
      const Sampler sampler(file, {0, file.size()}, plan, 9);
      std::vector<std::vector<std::int64_t>> steps;
      std::multiset<std::int64_t> epoch;
      for (std::int64_t step = 0; step < kSequences / 8; ++step) {
        steps.push_back(trained_in(sampler, plan, step));
        CHECK(steps.back().size() == 8);
        std::ranges::sort(steps.back());
        epoch.insert(steps.back().begin(), steps.back().end());
      }
      CHECK(epoch.size() == kSequences);
      CHECK(std::set(epoch.begin(), epoch.end()).size() == kSequences);
      if (expected.empty()) expected = steps;
      CHECK(steps == expected);
    }
}

TEST_CASE("an empty sequence has the tokens of its micro-batch's first one", "[runtime][data]") {
  const DataFile data("empty.u16", counting_u16(4 * 32 + 1));
  const TokenFile file(data.path());
  program::Plan plan = make_plan(2, 3);  // 8 of 12: rank 0 has 3 + 2, rank 1 has 3 + 0
  plan.uneven_batch = true;
  REQUIRE(plan.num_microbatches() == 2);
  REQUIRE(plan.empty_sequences() == 4);
  const Sampler sampler(file, {0, file.size()}, plan, 2);
  StepBatch first, second;
  sampler.load(0, {.dp = 0}, first);
  sampler.load(0, {.dp = 1}, second);
  const auto ids = [](const StepBatch& batch, int sequence) {
    return std::vector(batch.ids.begin() + 4 * sequence, batch.ids.begin() + 4 * sequence + 4);
  };
  CHECK(ids(first, 5) == ids(first, 3));
  for (const int sequence : {3, 4, 5}) CHECK(ids(second, sequence) == ids(first, 0));
  CHECK(std::ranges::count(first.targets, -1) == 4);
  CHECK(std::ranges::count(second.targets, -1) == 12);
}

TEST_CASE("the order that is told is the order that is read", "[runtime][data]") {
  const DataFile data("told.u16", counting_u16(203));
  const TokenFile file(data.path());
  const program::Plan plan = make_plan(2, 2);
  const TokenRange training = hold_out_tail(file, plan).training;
  const Sampler sampler(file, training, plan, 7);
  StepBatch batch;
  for (const std::int64_t step : {0, 3, 11})
    for (int dp = 0; dp < 2; ++dp) {
      sampler.load(step, {.dp = dp}, batch);
      std::vector<std::int32_t> told;
      for (int m = 0; m < plan.num_microbatches(); ++m)
        for (int i = 0; i < plan.micro_batch_size; ++i) {
          const std::int64_t position = step * 8 + place_in_step(plan, m, dp, i);
          for (const TokenRange& range : sampler.tokens(sampler.sequence(position)))
            for (std::int64_t token = range.begin; token < range.end; ++token)
              told.push_back(static_cast<std::int32_t>(token));
        }
      CHECK(batch.ids == told);
    }
}

TEST_CASE("packed documents are told where they lie", "[runtime][data]") {
  // Tokens 1 to 9 end a document each time 9 comes.
  std::string bytes;
  for (int i = 0; i < 179; ++i) {
    bytes.push_back(static_cast<char>(1 + i * 5 % 9));
    bytes.push_back(0);
  }
  const DataFile data("packed.u16", bytes);
  const TokenFile file(data.path());
  program::Plan plan = make_plan();
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 2;
  plan.workload.documents = {.packed = true, .end_of_document = 9};
  const Sampler sampler(file, {0, file.size()}, plan, 3);
  std::set<std::int64_t> told;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < sampler.num_sequences(); ++i)
    for (const TokenRange& range : sampler.tokens(i))
      for (std::int64_t token = range.begin; token < range.end; ++token, ++count)
        told.insert(token);
  CHECK(std::ssize(told) == count);  // no token twice
  CHECK(count == 179);
  for (std::int64_t i = 0; i < sampler.num_sequences(); ++i)
    for (const TokenRange& range : sampler.tokens(i))
      CHECK((range.begin == 0 || file[range.begin - 1] == 9));
}

TEST_CASE("training never sees a token that is held out", "[runtime][data]") {
  const program::Plan plan = make_plan();
  for (const int tokens : {66, 500, 4001}) {
    const DataFile data("tail.u16", counting_u16(tokens));
    const TokenFile file(data.path());
    const DataSplit split = hold_out_tail(file, plan);
    INFO(tokens << " tokens");
    CHECK(split.training.begin == 0);
    CHECK(split.training.end == split.evaluation.begin);
    CHECK(split.evaluation.end == tokens);
    // A twentieth, but at least one batch of 8 sequences of 4 and the last target.
    CHECK(split.evaluation.size() == std::max(33, tokens / 20));
    std::int32_t largest = 0;
    std::int32_t smallest = tokens;
    StepBatch batch;
    const Sampler training(file, split.training, plan, 1);
    for (int step = 0; step * 8 < training.num_sequences(); ++step) {
      training.load(step, {}, batch);
      largest = std::max(largest, std::ranges::max(batch.targets));
    }
    const Sampler evaluation(file, split.evaluation, plan, 1);
    for (int step = 0; step * 8 < evaluation.num_sequences(); ++step) {
      evaluation.load(step, {}, batch);
      smallest = std::min(smallest, std::ranges::min(batch.ids));
    }
    CHECK(largest < smallest);
  }
}

TEST_CASE("a file that cannot be trained on is named, with the reason", "[runtime][data]") {
  CHECK_THAT(message_of("/missing/book.txt"), Contains("/missing/book.txt: no such file"));
  const DataFile empty("empty.txt", "");
  CHECK_THAT(message_of(empty.path()), Contains(empty.path() + ": the data file is empty"));
  const DataFile odd("odd.u16", "abc");
  CHECK_THAT(message_of(odd.path()),
             Contains(odd.path() + ": 3 bytes are no whole number of 2-byte tokens"));
  const DataFile odd_wide("odd.u32", "abcdef");
  CHECK_THAT(message_of(odd_wide.path()),
             Contains(odd_wide.path() + ": 6 bytes are no whole number of 4-byte tokens"));
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK_THAT(message_of(folder), Contains(folder + ": is a folder, not a file"));
}

TEST_CASE("a file without a single sequence suggests no batch of zero", "[runtime][data]") {
  const DataFile data("tiny.u16", counting_u16(3));
  const std::string message = load_message(data.path(), make_plan());
  CHECK_THAT(message, Contains("hold 0 sequences") && Contains("at least 33 tokens"));
  CHECK_THAT(message, !Contains("global_batch_size <="));
}

TEST_CASE("a token outside the vocabulary is named with its place", "[runtime][data]") {
  program::Plan plan = make_plan();
  plan.model.vocab_size = 20;
  const DataFile data("big.u16", counting_u16(4 * 8 + 1));
  CHECK_THAT(load_message(data.path(), plan), Contains(data.path()) &&
                                                  Contains("outside the vocabulary of 20") &&
                                                  Contains("token 2"));
  // The largest 32-bit id must not pass as -1, nor be printed as such.
  std::string bytes(4 * 33, '\0');
  bytes.replace(4 * 5, 4, "\xff\xff\xff\xff");
  const DataFile wide("big.u32", bytes);
  CHECK_THAT(load_message(wide.path(), plan), Contains("token 4294967295 at position 5"));
}

namespace {

/// Sequences of 4 tokens 10 s, 10 s + 1, ..., each followed by its class s % 3.
std::string classified_u16(int sequences) {
  std::string bytes;
  for (int s = 0; s < sequences; ++s)
    for (const int token : {10 * s, 10 * s + 1, 10 * s + 2, 10 * s + 3, s % 3}) {
      bytes.push_back(static_cast<char>(token % 256));
      bytes.push_back(static_cast<char>(token / 256));
    }
  return bytes;
}

program::Plan classifier_plan(int dp = 1, int micro_batch = 1) {
  program::Plan plan = make_plan(dp, micro_batch);
  plan.model.name = "encoder";
  plan.model.causal = false;
  plan.model.num_classes = 3;
  return plan;
}

}  // namespace

TEST_CASE("a classifier's sequences come with their class, whatever the plan",
          "[runtime][data][classes]") {
  const DataFile data("classes.u16", classified_u16(20));
  const TokenFile file(data.path());
  for (const int dp : {1, 2})
    for (const int micro_batch : {1, 2}) {
      const program::Plan plan = classifier_plan(dp, micro_batch);
      const Sampler sampler(file, {0, file.size()}, plan, 1);
      CHECK(sampler.num_sequences() == 20);
      std::set<std::int64_t> seen;
      for (int rank = 0; rank < dp; ++rank) {
        StepBatch batch;
        sampler.load(0, {.dp = rank}, batch);
        CHECK(batch.loss_tokens == 8);
        REQUIRE(batch.ids.size() == batch.targets.size());
        for (int m = 0; m < plan.num_microbatches(); ++m)
          for (std::size_t row = 0; row < static_cast<std::size_t>(4 * micro_batch); ++row) {
            const std::size_t first = static_cast<std::size_t>(m) * 4 * micro_batch;
            // One target a sequence, at the front of the micro-batch's.
            if (row >= static_cast<std::size_t>(micro_batch)) {
              CHECK(batch.targets[first + row] == -1);
              continue;
            }
            const std::int32_t token = batch.ids[first + 4 * row];
            CHECK(token % 10 == 0);
            CHECK(batch.ids[first + 4 * row + 3] == token + 3);
            CHECK(batch.targets[first + row] == token / 10 % 3);
            seen.insert(token);
          }
      }
      CHECK(seen.size() == 8);
    }
}

TEST_CASE("an empty sequence of a classifier has no class", "[runtime][data][classes]") {
  const DataFile data("uneven-classes.u16", classified_u16(20));
  const TokenFile file(data.path());
  program::Plan plan = classifier_plan(3, 2);  // 8 of 12
  plan.uneven_batch = true;
  const Sampler sampler(file, {0, file.size()}, plan, 1);
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    StepBatch batch;
    sampler.load(0, {.dp = rank}, batch);
    CHECK(batch.loss_tokens == 8);
    for (int m = 0; m < plan.num_microbatches(); ++m)
      for (int i = 0; i < 2; ++i)
        if (const auto row = static_cast<std::size_t>(8 * m + i); batch.targets[row] >= 0) {
          const std::int32_t token = batch.ids[static_cast<std::size_t>(8 * m + 4 * i)];
          CHECK(batch.targets[row] == token / 10 % 3);
          seen.insert(token);
        }
  }
  CHECK(seen.size() == 8);
  CHECK(std::set(seen.begin(), seen.end()).size() == 8);
}

TEST_CASE("what is held out of a classifier's file is whole sequences",
          "[runtime][data][classes]") {
  for (const int sequences : {16, 400}) {
    const DataFile data("tail-classes.u16", classified_u16(sequences));
    const TokenFile file(data.path());
    const program::Plan plan = classifier_plan();
    const DataSplit split = hold_out_tail(file, plan);
    CHECK(split.evaluation.end == file.size());
    CHECK(split.training.end == split.evaluation.begin);
    CHECK(split.evaluation.size() == 5 * std::max(8, sequences / 20));
    CHECK_NOTHROW(Sampler(file, split.evaluation, plan, 1).check_classes());
    CHECK_NOTHROW(Sampler(file, split.training, plan, 1).check_classes());
  }
}

TEST_CASE("a file that holds no classes is refused with the place and the form",
          "[runtime][data][classes]") {
  program::Plan plan = classifier_plan();
  const DataFile cut("cut-classes.u16", classified_u16(10).substr(0, 96));
  CHECK_THAT(load_message(cut.path(), plan),
             Contains(cut.path() + ": 48 tokens are no whole number of sequences of seq_len(4)") &&
                 Contains("5 each") && Contains("nearest: 45 tokens"));
  const DataFile few("few-classes.u16", classified_u16(7));
  CHECK_THAT(load_message(few.path(), plan),
             Contains("hold 7 sequences of seq_len 4") && Contains("use at least 40 tokens"));
  plan.model.num_classes = 2;  // the third sequence's class is 2
  const DataFile large("large-classes.u16", classified_u16(10));
  const TokenFile file(large.path());
  const auto message = [&] {
    try {
      Sampler(file, {0, file.size()}, plan, 1).check_classes();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK_THAT(message, Contains(large.path() + ": 2 at position 14 is no class") &&
                          Contains("encoder expects its class, 0 to 1 (num_classes = 2)"));
}

TEST_CASE("packed documents keep their tokens together, whatever the cp rank", "[runtime][data]") {
  // Documents of 3, 6 (a cut of 4 and one of 2) and 2 tokens, ended by token 9; a lone 9 is
  // nothing.
  std::string bytes;
  for (const int token : {1, 2, 9, 9, 3, 4, 5, 6, 7, 9, 8, 9})
    bytes.push_back(static_cast<char>(token));
  const DataFile data("packed", bytes);
  const TokenFile file(data.path());
  program::Plan plan = make_plan();
  plan.model.vocab_size = 256;
  plan.workload.global_batch_size = 3;
  plan.workload.documents = {.packed = true, .end_of_document = 9};
  const Sampler sampler(file, {0, file.size()}, plan, 1);
  REQUIRE(sampler.num_sequences() == 3);  // 4 | 3 | 2 + 2
  StepBatch whole;
  sampler.load(0, {}, whole);
  CHECK(whole.loss_tokens == 3 + 2 + 1 + 1);
  std::set<std::vector<std::int32_t>> sequences;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto part = [&](const std::vector<std::int32_t>& all, std::size_t size) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(size * i);
      return std::vector<std::int32_t>(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    const std::vector<std::int32_t> ids = part(whole.ids, 4);
    sequences.insert(ids);
    const std::vector<std::int32_t> targets = part(whole.targets, 4);
    const std::vector<std::int32_t> positions = part(whole.positions, 4);
    if (ids[0] == 1) {
      CHECK(targets == std::vector<std::int32_t>{2, 9, -1, -1});
      CHECK(positions == std::vector<std::int32_t>{0, 1, 2, 0});
      CHECK(part(whole.key_ranges, 8) == std::vector<std::int32_t>{0, 1, 0, 2, 0, 3, 3, 4});
    }
    if (ids[0] == 7) {
      CHECK(targets == std::vector<std::int32_t>{9, -1, 9, -1});
      CHECK(positions == std::vector<std::int32_t>{0, 1, 0, 1});
    }
  }
  CHECK(sequences == std::set<std::vector<std::int32_t>>{{3, 4, 5, 6}, {1, 2, 9, 9}, {7, 9, 8, 9}});
  plan.parallel.cp = 2;
  std::multiset<std::pair<int, int>> expected, found;  // token, target
  for (std::size_t i = 0; i < whole.ids.size(); ++i)
    expected.emplace(whole.ids[i], whole.targets[i]);
  for (int cp = 0; cp < 2; ++cp) {
    StepBatch part;
    sampler.load(0, {.cp = cp}, part);
    CHECK(part.ids.size() == 6);
    CHECK(part.loss_tokens == whole.loss_tokens);
    for (std::size_t i = 0; i < part.ids.size(); ++i) found.emplace(part.ids[i], part.targets[i]);
  }
  CHECK(found == expected);
  plan.parallel.cp = 1;
  plan.workload.global_batch_size = 4;
  CHECK_THAT(load_message(data.path(), plan), Contains("fill 3 sequences"));
}

}  // namespace meshplan::runtime

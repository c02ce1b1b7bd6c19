#include "program/context/document_context.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// What each rank still takes, and what it already computes.
class Divider {
 public:
  Divider(const PackedSequence& sequence, std::int64_t seq_len, int cp, std::int64_t most)
      : sequence_(sequence),
        seq_len_(seq_len),
        cp_(cp),
        most_(most),
        room_(at(cp), seq_len / cp),
        pairs_(at(cp), 0.0),
        shards_(at(cp)) {}

  DocumentShards run() {
    std::vector<int> order(at(sequence_.num_documents()));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int index) { return sequence_.document(index).padded; });
    for (const int index : order) {
      const Document document = sequence_.document(index);
      place(document.begin, document.padded);
    }
    fill_with_padding();
    for (std::vector<TokenRun>& runs : shards_) std::ranges::sort(runs, {}, &TokenRun::begin);
    return std::move(shards_);
  }

 private:
  void place(std::int64_t begin, std::int64_t tokens) {
    int degree = most_ == 0
                     ? cp_
                     : static_cast<int>(std::min<std::int64_t>(cp_, (tokens + most_ - 1) / most_));
    std::vector<int> ranks = least_busy(degree, (tokens + degree - 1) / degree);
    while (room_of(ranks) < tokens) ranks = least_busy(++degree, 1);
    std::ranges::sort(ranks);
    cut(begin, ranks, shares(ranks, tokens));
  }

  /// Those with the fewest pairs, first of all where `share` tokens fit.
  std::vector<int> least_busy(int count, std::int64_t share) const {
    std::vector<int> ranks(at(cp_));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::ranges::stable_sort(ranks, [&](int a, int b) {
      const bool fits_a = room_[at(a)] >= share, fits_b = room_[at(b)] >= share;
      if (fits_a != fits_b) return fits_a;
      if (!fits_a) return room_[at(a)] > room_[at(b)];
      return pairs_[at(a)] < pairs_[at(b)];
    });
    ranks.resize(at(count));
    return ranks;
  }
  std::int64_t room_of(const std::vector<int>& ranks) const {
    std::int64_t room = 0;
    for (const int rank : ranks) room += room_[at(rank)];
    return room;
  }

  /// Equal ones as far as there is room; what is left goes one by one to who has most of it.
  std::vector<std::int64_t> shares(const std::vector<int>& ranks, std::int64_t tokens) const {
    std::vector<std::int64_t> shares;
    shares.reserve(ranks.size());
    const std::int64_t equal = tokens / std::ssize(ranks);
    for (const int rank : ranks) shares.push_back(std::min(equal, room_[at(rank)]));
    std::int64_t left = tokens - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    while (left > 0) {
      std::size_t widest = 0;
      const auto room = [&](std::size_t i) { return room_[at(ranks[i])] - shares[i]; };
      for (std::size_t i = 1; i < ranks.size(); ++i)
        if (room(i) > room(widest)) widest = i;
      // As many at once as leave it the widest, or all that is left where it stands alone.
      std::int64_t second = 0;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (i != widest) second = std::max(second, room(i));
      const std::int64_t given = std::clamp<std::int64_t>(room(widest) - second, 1, left);
      shares[widest] += given;
      left -= given;
    }
    return shares;
  }

  /// Zig-zag: first halves in the order of the ranks, second halves on the way back.
  void cut(std::int64_t begin, const std::vector<int>& ranks,
           const std::vector<std::int64_t>& shares) {
    std::int64_t next = begin;
    const auto give = [&](std::size_t i, std::int64_t tokens) {
      const int rank = ranks[i];
      if (tokens == 0) return;
      shards_[at(rank)].push_back({next, next + tokens});
      room_[at(rank)] -= tokens;
      const auto before = static_cast<double>(next - begin);
      const auto count = static_cast<double>(tokens);
      pairs_[at(rank)] += count * (before + (count + 1) / 2);
      next += tokens;
    };
    for (std::size_t i = 0; i < ranks.size(); ++i) give(i, shares[i] / 2);
    for (std::size_t i = ranks.size(); i-- > 0;) give(i, shares[i] - shares[i] / 2);
  }

  void fill_with_padding() {
    std::int64_t next = sequence_.padded.back();
    for (int rank = 0; rank < cp_; ++rank) {
      const std::int64_t tokens = room_[at(rank)];
      if (tokens == 0) continue;
      shards_[at(rank)].push_back({next, next + tokens});
      next += tokens;
    }
    require_invariant(next == seq_len_, "documents that are not as long as their sequence");
  }

  const PackedSequence& sequence_;
  std::int64_t seq_len_;
  int cp_;
  std::int64_t most_;
  std::vector<std::int64_t> room_;
  std::vector<double> pairs_;
  DocumentShards shards_;
};

/// By position of a sequence: where its document begins. A position that is padding is a document
/// of its own.
std::vector<std::int64_t> document_begins(const PackedSequence& sequence, std::int64_t seq_len) {
  std::vector<std::int64_t> begins(at(seq_len));
  std::iota(begins.begin(), begins.end(), std::int64_t{0});
  for (int d = 0; d < sequence.num_documents(); ++d) {
    const Document document = sequence.document(d);
    for (std::int64_t i = 0; i < document.length; ++i)
      begins[at(document.begin + i)] = document.begin;
  }
  return begins;
}

std::vector<std::int64_t> positions_of(const std::vector<TokenRun>& runs) {
  std::vector<std::int64_t> positions;
  for (const TokenRun& run : runs)
    for (std::int64_t i = run.begin; i < run.end; ++i) positions.push_back(i);
  return positions;
}

int ring_steps(const Plan& plan) {
  const bool ring = plan.parallel.cp > 1 && plan.context_parallel == ContextMethod::Ring;
  return ring ? plan.parallel.cp : 1;
}

bool by_heads(const Plan& plan) {
  return plan.parallel.cp > 1 && plan.context_parallel == ContextMethod::Ulysses;
}

// Fills the arrays of one sequence of a micro-batch.
class SequenceArrays {
 public:
  SequenceArrays(const Plan& plan, int cp_rank, const PackedSequence& sequence, std::int64_t index,
                 DocumentArrays arrays)
      : plan_(plan),
        rank_(cp_rank),
        seq_len_(plan.workload.seq_len),
        index_(index),
        begins_(document_begins(sequence, seq_len_)),
        arrays_(arrays) {
    for (const std::vector<TokenRun>& runs :
         shard_documents(sequence, seq_len_, plan.parallel.cp, plan.max_tokens_per_rank))
      held_.push_back(positions_of(runs));
  }

  const std::vector<std::int64_t>& run() {
    const std::vector<std::int64_t>& own = held_[at(rank_)];
    const std::int64_t first_row = index_ * std::ssize(own);
    for (std::int64_t i = 0; i < std::ssize(own); ++i)
      arrays_.positions[at(first_row + i)] =
          static_cast<std::int32_t>(own[at(i)] - begins_[at(own[at(i)])]);
    fill_ranges();
    if (!arrays_.order.empty()) fill_order();
    return own;
  }

 private:
  void fill_ranges() {
    std::vector<std::int64_t> all(at(seq_len_));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const int steps = ring_steps(plan_);
    if (steps == 1) return fill_step(0, by_heads(plan_) ? all : held_[at(rank_)], all);
    for (int step = 0; step < steps; ++step)
      fill_step(step, held_[at(rank_)], held_[at((rank_ - step + steps) % steps)]);
  }

  /// Both in ascending order; ranges count in `keys`.
  void fill_step(int step, const std::vector<std::int64_t>& queries,
                 const std::vector<std::int64_t>& keys) {
    const std::int64_t rows = std::ssize(queries) * plan_.micro_batch_size;
    std::int64_t out = 2 * (step * rows + index_ * std::ssize(queries));
    for (const std::int64_t query : queries) {
      const auto place = [&](std::int64_t position) {
        return static_cast<std::int32_t>(std::ranges::lower_bound(keys, position) - keys.begin());
      };
      arrays_.key_ranges[at(out++)] = place(begins_[at(query)]);
      arrays_.key_ranges[at(out++)] = place(query + 1);
    }
  }

  void fill_order() {
    const std::int64_t of_rank = std::ssize(held_.front());
    const std::int64_t rows = seq_len_ * plan_.micro_batch_size;
    for (std::int64_t rank = 0; rank < std::ssize(held_); ++rank)
      for (std::int64_t i = 0; i < of_rank; ++i) {
        const std::int64_t row = rank * of_rank * plan_.micro_batch_size + index_ * of_rank + i;
        const std::int64_t place = index_ * seq_len_ + held_[at(rank)][at(i)];
        arrays_.order[at(place)] = static_cast<std::int32_t>(row);
        arrays_.order[at(rows + row)] = static_cast<std::int32_t>(place);
      }
  }

  const Plan& plan_;
  int rank_;
  std::int64_t seq_len_;
  std::int64_t index_;
  std::vector<std::int64_t> begins_;
  std::vector<std::vector<std::int64_t>> held_;  // positions by rank
  DocumentArrays arrays_;
};

/// Pairs of the queries [begin, end) of a document, each of which sees itself and what is before it
/// in the document, at most `window` keys of it; counted from the document's begin.
double pairs_within(double begin, double end, double window) {
  const auto up_to = [&](double count) {  // of the queries before `count`
    const double growing = window > 0 ? std::min(count, window) : count;
    return growing * (growing + 1) / 2 + (count - growing) * window;
  };
  return up_to(end) - up_to(begin);
}

/// The runs of a rank that are a document's: they are ascending, and none crosses its border.
std::span<const TokenRun> runs_of(const std::vector<TokenRun>& runs, const Document& document) {
  const auto first = std::ranges::lower_bound(runs, document.begin, {}, &TokenRun::begin);
  const auto last =
      std::ranges::lower_bound(runs, document.begin + document.padded, {}, &TokenRun::begin);
  return {first, last};
}

/// Pairs of one rank's queries with another one's keys (or its own), without windows.
double pairs_between(std::span<const TokenRun> queries, std::span<const TokenRun> keys) {
  double pairs = 0;
  for (const TokenRun& query : queries) {
    const auto count = static_cast<double>(query.end - query.begin);
    for (const TokenRun& key : keys) {
      if (key.begin > query.begin) continue;
      pairs +=
          key == query ? count * (count + 1) / 2 : count * static_cast<double>(key.end - key.begin);
    }
  }
  return pairs;
}

/// @param step  of a ring; a method without one is at step 0
double most_pairs(const Plan& plan, const PackedSequence& sequence, const DocumentShards& shards,
                  int step, std::int64_t window) {
  const int cp = plan.parallel.cp;
  double most = 0, all = 0;
  for (int rank = 0; rank < cp; ++rank) {
    double pairs = 0;
    for (int d = 0; d < sequence.num_documents(); ++d) {
      const Document document = sequence.document(d);
      const auto own = runs_of(shards[at(rank)], document);
      if (ring_steps(plan) > 1) {
        pairs += pairs_between(own, runs_of(shards[at((rank - step + cp) % cp)], document));
        continue;
      }
      for (const TokenRun& run : own)
        pairs += pairs_within(static_cast<double>(run.begin - document.begin),
                              static_cast<double>(run.end - document.begin),
                              static_cast<double>(window));
    }
    most = std::max(most, pairs);
    all += pairs;
  }
  return by_heads(plan) ? all : most;
}

}  // namespace

DocumentShards shard_documents(const PackedSequence& sequence, std::int64_t seq_len, int cp,
                               std::int64_t max_tokens_per_rank) {
  require_invariant(seq_len % cp == 0, "a sequence that its ranks cannot share alike");
  return Divider(sequence, seq_len, cp, max_tokens_per_rank).run();
}

BatchSizes batch_sizes(const Plan& plan) {
  const std::int64_t tokens = plan.tokens_per_microbatch();
  BatchSizes sizes{.ids = (1 + plan.model.mtp_layers) * tokens};
  if (!plan.workload.documents.packed) return sizes;
  const std::int64_t queries = by_heads(plan) ? tokens * plan.parallel.cp : tokens;
  sizes.positions = tokens;
  sizes.key_ranges = 2 * queries * ring_steps(plan);
  if (plan.parallel.cp > 1 && ring_steps(plan) == 1) sizes.order = 2 * tokens * plan.parallel.cp;
  return sizes;
}

std::vector<std::int64_t> fill_document_arrays(const Plan& plan, int cp_rank,
                                               std::span<const PackedSequence> sequences,
                                               DocumentArrays arrays) {
  require_invariant(std::ssize(sequences) == plan.micro_batch_size,
                    "a micro-batch of another number of sequences");
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < std::ssize(sequences); ++i) {
    SequenceArrays sequence(plan, cp_rank, sequences[at(i)], i, arrays);
    const std::vector<std::int64_t>& own = sequence.run();
    positions.insert(positions.end(), own.begin(), own.end());
  }
  return positions;
}

std::vector<DocumentPairs> expected_pairs(const Plan& plan) {
  const Documents& documents = plan.workload.documents;
  if (!documents.packed) return {};
  const std::vector<PackedSequence> sequences =
      expected_sequences(documents.expected_lengths, plan.workload.seq_len, documents.pad_multiple);
  std::vector<DocumentPairs> all;
  for (const std::int64_t window : std::set<std::int64_t>{0, plan.model.window})
    for (int step = 0; step < ring_steps(plan); ++step)
      all.push_back({.ring_step = step, .window = window});
  for (const PackedSequence& sequence : sequences) {
    const DocumentShards shards = shard_documents(sequence, plan.workload.seq_len, plan.parallel.cp,
                                                  plan.max_tokens_per_rank);
    for (DocumentPairs& entry : all)
      entry.pairs += most_pairs(plan, sequence, shards, entry.ring_step, entry.window) /
                     static_cast<double>(sequences.size());
  }
  return all;
}

}  // namespace meshplan::program

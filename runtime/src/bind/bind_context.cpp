// Attention over the keys of other ranks, and the copies beside its exchanges.
#include "bind/bound_operands.hpp"
#include "program/context/context.hpp"

namespace meshplan::runtime {

using program::AttentionTile;
using program::ComputeKind;

namespace {

std::function<void()> in_order(std::vector<std::function<void()>> calls) {
  return [calls = std::move(calls)] {
    for (const auto& call : calls) call();
  };
}

/// Bytes of a row of q, k, v and o, of this rank's heads: value heads may have another size.
struct RowBytes {
  std::int64_t element = 0;
  std::int64_t q = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
  std::int64_t o = 0;
  std::int64_t q_row = 0;  // from one row of queries to the next: they may lie beside own keys

  RowBytes(const models::OpAttributes& a, DType dtype)
      : element(size_of(dtype)),
        q(std::int64_t{a.heads} * a.head_size * element),
        k(std::int64_t{a.kv_heads} * a.head_size * element),
        v(std::int64_t{a.kv_heads} * a.value_head_size * element),
        o(std::int64_t{a.heads} * a.value_head_size * element),
        q_row(qkv()) {}
  std::int64_t kv() const { return k + v; }
  std::int64_t qkv() const { return q + k + v; }
};

kernels::AttentionShape shape_of(const AttentionTile& tile, const models::OpAttributes& a,
                                 std::int64_t num_sequences = 1) {
  return {.num_sequences = num_sequences,
          .query_len = tile.num_queries,
          .key_len = tile.num_keys,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_size = a.head_size,
          .value_head_size = a.value_head_size,
          .causal = tile.causal,
          .query_offset = tile.query_offset,
          .window = a.window,
          .scale = static_cast<float>(a.scale),
          .softcap = static_cast<float>(a.softcap)};
}

/// Where a tile's operands lie, for one sequence.
struct TileRows {
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t queries = 0;  // of a sequence; 0: the tile is all of them
  /// Statistics are (sequences, heads, queries).
  std::int64_t statistic(int heads) const {
    return queries == 0 ? 0 : query / queries * heads * queries + query % queries;
  }
};

TileRows rows_of(const AttentionTile& tile, std::int64_t sequence, std::int64_t queries,
                 std::int64_t keys) {
  return {sequence * queries + tile.query_begin, sequence * keys + tile.key_begin, queries};
}

/// What all tiles of an operation are computed with.
struct Choice {
  DType dtype = DType::F32;
  kernels::AttentionChoice kernels;
};

kernels::AttentionForward forward_of(const kernels::AttentionShape& shape, TileRows rows,
                                     const RowBytes& bytes, const Choice& choice, std::byte* qkv,
                                     std::byte* kv, std::byte* out, float* lse) {
  return {.shape = shape,
          .dtype = choice.dtype,
          .q = qkv + rows.query * bytes.q_row,
          .q_stride = bytes.q_row / bytes.element,
          .k = kv + rows.key * bytes.kv(),
          .v = kv + rows.key * bytes.kv() + bytes.k,
          .kv_stride = bytes.kv() / bytes.element,
          .o = out + rows.query * bytes.o,
          .o_stride = bytes.o / bytes.element,
          .lse = lse + rows.statistic(shape.heads),
          .lse_stride = rows.queries,
          .choice = choice.kernels};
}

/// @param forward  the same tile's, with the o and lse that it is to read
kernels::AttentionBackward backward_of(const kernels::AttentionForward& forward, std::byte* dout,
                                       std::byte* dq, std::int64_t dq_stride, std::byte* dkv,
                                       const RowBytes& bytes) {
  return {.shape = forward.shape,
          .dtype = forward.dtype,
          .q = forward.q,
          .q_stride = forward.q_stride,
          .k = forward.k,
          .v = forward.v,
          .kv_stride = forward.kv_stride,
          .key_ranges = forward.key_ranges,
          .o = forward.o,
          .o_stride = forward.o_stride,
          .output_grad = dout,
          .lse = forward.lse,
          .lse_stride = forward.lse_stride,
          .dq = dq,
          .dq_stride = dq_stride,
          .dk = dkv,
          .dv = dkv + bytes.k,
          .dkv_stride = forward.kv_stride,
          .choice = forward.choice};
}

}  // namespace

/// Packed documents, all sequences at once: which keys a query sees is listed. Keys lie in the
/// order of their sequence, or of the rank that they are from.
std::function<void()> OperatorBinder::Body::bind_document_attention(const Operands& o,
                                                                    std::int64_t keys) {
  const models::OpAttributes& a = o.work.attributes;
  RowBytes bytes(a, o.dtype());
  const Choice choice{o.dtype(), attention_choice(program_)};
  bytes.q_row = o.in_shape(o.forward() ? 0 : 1)[1] * bytes.element;
  const kernels::AttentionShape shape =
      shape_of({.num_queries = local_seq_len(), .num_keys = keys}, a, program_.sizes.sequences);
  if (o.forward()) {
    kernels::AttentionForward f =
        forward_of(shape, {}, bytes, choice, o.in<std::byte>(0), o.in<std::byte>(1),
                   o.out<std::byte>(0), o.out<float>(1));
    f.key_ranges = o.of_documents();
    f.sinks = own_sinks(o);
    return ready(f);
  }
  kernels::AttentionForward f = forward_of(shape, {}, bytes, choice, o.in<std::byte>(1),
                                           o.in<std::byte>(4), o.in<std::byte>(2), o.in<float>(3));
  f.key_ranges = o.of_documents();
  const std::int64_t dq_bytes = o.work.ring_step ? bytes.q : bytes.q_row;
  return ready(backward_of(f, o.in<std::byte>(0), o.out<std::byte>(0), dq_bytes / bytes.element,
                           o.out<std::byte>(1), bytes));
}

/// Own queries against the keys of whole sequences: chunk by chunk. In the backward pass the second
/// chunk, which sees more keys, writes their gradients, and the first one's are added to them.
std::function<void()> OperatorBinder::Body::bind_gathered_attention(const Operands& o) {
  if (o.work.documents) return bind_document_attention(o, seq_len());
  const models::OpAttributes& a = o.work.attributes;
  RowBytes bytes(a, o.dtype());
  const Choice choice{o.dtype(), attention_choice(program_)};
  bytes.q_row = o.in_shape(o.forward() ? 0 : 1)[1] * bytes.element;
  const std::vector<AttentionTile> tiles =
      program::gathered_tiles(seq_len(), program_.plan.parallel.cp, place_.coordinates.cp);
  std::vector<std::function<void()>> calls;
  for (std::int64_t sequence = 0; sequence < program_.sizes.sequences; ++sequence) {
    if (o.forward()) {
      for (const AttentionTile& tile : tiles) {
        kernels::AttentionForward f = forward_of(
            shape_of(tile, a), rows_of(tile, sequence, local_seq_len(), seq_len()), bytes, choice,
            o.in<std::byte>(0), o.in<std::byte>(1), o.out<std::byte>(0), o.out<float>(1));
        f.sinks = own_sinks(o);
        calls.push_back(ready(f));
      }
      continue;
    }
    std::byte* second_dkv = o.out<std::byte>(1) + sequence * seq_len() * bytes.kv();
    std::byte* first_dkv = o.out<std::byte>(2) + sequence * seq_len() / 2 * bytes.kv();
    for (const AttentionTile& tile : {tiles[1], tiles[0]}) {
      const TileRows rows = rows_of(tile, sequence, local_seq_len(), seq_len());
      const kernels::AttentionForward f =
          forward_of(shape_of(tile, a), rows, bytes, choice, o.in<std::byte>(1), o.in<std::byte>(4),
                     o.in<std::byte>(2), o.in<float>(3));
      calls.push_back(ready(backward_of(f, o.in<std::byte>(0) + rows.query * bytes.o,
                                        o.out<std::byte>(0) + rows.query * bytes.q_row, f.q_stride,
                                        tile == tiles[1] ? second_dkv : first_dkv, bytes)));
    }
    const std::int64_t columns = bytes.kv() / bytes.element;
    const std::int64_t seen = tiles[1].num_keys;
    if (seen < seq_len())
      calls.push_back(ready(kernels::Fill{.count = (seq_len() - seen) * columns,
                                          .dtype = o.dtype(),
                                          .x = second_dkv + seen * bytes.kv()}));
    calls.push_back(ready(kernels::Accumulate{.count = tiles[0].num_keys * columns,
                                              .sum_dtype = o.dtype(),
                                              .sum = second_dkv,
                                              .value_dtype = o.dtype(),
                                              .value = first_dkv}));
  }
  return in_order(std::move(calls));
}

/// Own queries against the keys of one rank. In the backward pass o and lse are those over all
/// keys, so that the gradients are this rank's share of the whole.
std::function<void()> OperatorBinder::Body::bind_ring_attention(const Operands& o) {
  if (o.work.documents) return bind_document_attention(o, local_seq_len());
  const models::OpAttributes& a = o.work.attributes;
  const RowBytes bytes(a, o.dtype());
  const Choice choice{o.dtype(), attention_choice(program_)};
  const AttentionTile tile = program::ring_tile(seq_len(), program_.plan.parallel.cp,
                                                place_.coordinates.cp, *o.work.ring_step);
  std::vector<std::function<void()>> calls;
  for (std::int64_t sequence = 0; sequence < program_.sizes.sequences; ++sequence) {
    const TileRows rows = rows_of(tile, sequence, local_seq_len(), local_seq_len());
    if (o.forward()) {
      kernels::AttentionForward f =
          forward_of(shape_of(tile, a), rows, bytes, choice, o.in<std::byte>(0), o.in<std::byte>(1),
                     o.out<std::byte>(0), o.out<float>(1));
      f.sinks = own_sinks(o);  // of the first step: the merges keep what it adds
      calls.push_back(ready(f));
      continue;
    }
    const kernels::AttentionForward f =
        forward_of(shape_of(tile, a), rows, bytes, choice, o.in<std::byte>(1), o.in<std::byte>(4),
                   o.in<std::byte>(2), o.in<float>(3));
    calls.push_back(ready(backward_of(
        f, o.in<std::byte>(0) + rows.query * bytes.o, o.out<std::byte>(0) + rows.query * bytes.q,
        bytes.q / bytes.element, o.out<std::byte>(1) + rows.key * bytes.kv(), bytes)));
  }
  return in_order(std::move(calls));
}

/// Adds a step of a ring to the sums, in the rows that its tile has.
std::function<void()> OperatorBinder::Body::bind_merge(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const AttentionTile all{.num_queries = local_seq_len(), .num_keys = local_seq_len()};
  const AttentionTile tile = o.work.documents
                                 ? all
                                 : program::ring_tile(seq_len(), program_.plan.parallel.cp,
                                                      place_.coordinates.cp, *o.work.ring_step);
  const auto dtype_of = [&](std::size_t input) {
    return o.value(o.operation.inputs.at(input)).dtype;
  };
  const auto row = [&](std::size_t input, std::int64_t index) {
    return o.in<std::byte>(input) + index * o.in_shape(input)[1] * size_of(dtype_of(input));
  };
  const auto add = [&](std::size_t part, std::size_t sum, std::int64_t first, std::int64_t rows) {
    return ready(kernels::Accumulate{.count = rows * o.in_shape(part)[1],
                                     .sum_dtype = dtype_of(sum),
                                     .sum = row(sum, first),
                                     .value_dtype = dtype_of(part),
                                     .value = row(part, first)});
  };
  std::vector<std::function<void()>> calls;
  for (std::int64_t sequence = 0; sequence < program_.sizes.sequences; ++sequence) {
    const TileRows rows = rows_of(tile, sequence, local_seq_len(), local_seq_len());
    if (!o.forward()) {
      calls.push_back(add(0, 2, rows.query, tile.num_queries));
      calls.push_back(add(1, 3, rows.key, tile.num_keys));
      continue;
    }
    calls.push_back(
        ready(kernels::AttentionMerge{.tokens = tile.num_queries,
                                      .heads = a.heads,
                                      .head_size = a.value_head_size,
                                      .dtype = dtype_of(2),
                                      .o = row(2, rows.query),
                                      .o_stride = o.in_shape(2)[1],
                                      .lse = o.in<float>(3) + rows.statistic(a.heads),
                                      .lse_stride = rows.queries,
                                      .other_dtype = dtype_of(0),
                                      .other_o = row(0, rows.query),
                                      .other_o_stride = o.in_shape(0)[1],
                                      .other_lse = o.in<float>(1) + rows.statistic(a.heads)}));
  }
  return in_order(std::move(calls));
}

std::function<void()> OperatorBinder::Body::bind_convert(const Operands& o) {
  return ready(kernels::Convert{.count = o.in_elements(0),
                                .from_dtype = o.value(o.operation.inputs.at(0)).dtype,
                                .from = o.in(0),
                                .to_dtype = o.value(o.operation.outputs.at(0)).dtype,
                                .to = o.out(0)});
}

/// The columns of keys and values out of qkv, or their gradients into its gradient.
std::function<void()> OperatorBinder::Body::bind_key_values(const Operands& o) {
  const RowBytes bytes(o.work.attributes, o.dtype());
  const std::int64_t rows = o.in_shape(0)[0];
  if (o.forward())
    return ready(kernels::CopyRows{.rows = rows,
                                   .row_bytes = bytes.kv(),
                                   .x = o.in<std::byte>(0) + bytes.q,
                                   .x_stride_bytes = bytes.qkv(),
                                   .y = o.out(0),
                                   .y_stride_bytes = bytes.kv()});
  std::vector<std::function<void()>> calls;
  const auto write = [&](std::size_t input, std::int64_t row_bytes, std::int64_t column) {
    calls.push_back(ready(kernels::CopyRows{.rows = rows,
                                            .row_bytes = row_bytes,
                                            .x = o.in(input),
                                            .x_stride_bytes = row_bytes,
                                            .y = o.out<std::byte>(0) + column,
                                            .y_stride_bytes = bytes.qkv()}));
  };
  const bool queries_apart = o.in_shape(1)[1] * bytes.element == bytes.q;
  write(0, bytes.kv(), bytes.q);
  if (queries_apart) write(1, bytes.q, 0);
  return in_order(std::move(calls));
}

/// The same for packed documents: which row goes where is listed, in both directions.
std::function<void()> OperatorBinder::Body::bind_document_order(const Operands& o) {
  const std::int64_t columns = o.in_shape(0).back();
  const std::int64_t rows = o.in_elements(0) / columns;
  return ready(
      kernels::DispatchForward{.tokens = rows,
                               .top_k = 1,
                               .size = columns,
                               .dtype = o.dtype(),
                               .choice_of_row = o.of_documents() + (o.work.reverse ? rows : 0),
                               .x = o.in(0),
                               .x_stride = columns,
                               .rows = o.out(0),
                               .rows_stride = columns});
}

/// Between (rank, its rows) and (sequence, position).
std::function<void()> OperatorBinder::Body::bind_chunk_order(const Operands& o) {
  if (o.work.documents) return bind_document_order(o);
  const int cp = program_.plan.parallel.cp;
  const std::int64_t row = o.in_shape(0).back() * size_of(o.dtype());
  const std::int64_t rows_of_rank = program_.sizes.tokens;
  std::byte* ranks = o.work.reverse ? o.out<std::byte>(0) : o.in<std::byte>(0);
  std::byte* sequences = o.work.reverse ? o.in<std::byte>(0) : o.out<std::byte>(0);
  std::vector<std::function<void()>> calls;
  for (int rank = 0; rank < cp; ++rank) {
    const program::ContextShard shard = program::context_shard(seq_len(), cp, rank);
    const std::int64_t chunk = shard.length / 2;
    for (const std::int64_t begin : {std::int64_t{0}, chunk}) {
      std::byte* apart = ranks + (rank * rows_of_rank + begin) * row;
      std::byte* together = sequences + shard.position(begin) * row;
      const std::int64_t apart_stride = shard.length * row, together_stride = seq_len() * row;
      calls.push_back(ready(
          kernels::CopyRows{.rows = program_.sizes.sequences,
                            .row_bytes = chunk * row,
                            .x = o.work.reverse ? together : apart,
                            .x_stride_bytes = o.work.reverse ? together_stride : apart_stride,
                            .y = o.work.reverse ? apart : together,
                            .y_stride_bytes = o.work.reverse ? apart_stride : together_stride}));
    }
  }
  return in_order(std::move(calls));
}

}  // namespace meshplan::runtime

#include "stacks/optimizer/muon.hpp"

#include "prices/element_bytes.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::Group;
using program::MuonTp;

/// Launches besides products: norm, division, two casts, two scalings.
constexpr double kPointwiseKernels = 6;
/// Bytes of an element beside the products: read for its norm; divided by it; to bf16 and back;
/// scaled.
constexpr double kPointwiseBytes =
    kFp32Bytes + 2 * kFp32Bytes + 2 * (kFp32Bytes + kHalfBytes) + 2 * kFp32Bytes;

/// The matrix that is made orthogonal, and how much of its longer side a rank has.
struct Iterated {
  double gram = 0;   // rows and columns of the Gram matrix
  double other = 0;  // the side over which it sums, on this rank
  bool summed = false;
};

Iterated iterated(const TrainedMatrix& matrix, int divided, MuonTp way) {
  const bool by_rows = matrix.split != models::Split::Row;
  const double parts = divided;
  double rows = matrix.rows, columns = matrix.columns;
  if (divided > 1 && way != MuonTp::Duplicated) (by_rows ? rows : columns) /= parts;
  // Together ranks sum over the side that is divided, be it the shorter one.
  if (divided > 1 && way == MuonTp::Distributed)
    return {.gram = by_rows ? columns : rows, .other = by_rows ? rows : columns, .summed = true};
  return {.gram = std::min(rows, columns), .other = std::max(rows, columns)};
}

}  // namespace

UpdatedElements updated_elements(const TrainingRun& run, const StageWork& work, int stage,
                                 const UpdateShards& shards) {
  const ParameterCount trained = work.trained(stage);
  const auto share = [](const ParameterCount& count, const UpdateShards& over) {
    return count.dense / over.dense + count.expert / over.expert;
  };
  if (run.orthogonal_steps == 0) return {.others = share(trained, shards)};
  const auto elements = [](const TrainedMatrix& matrix) { return matrix.elements_of_rank(); };
  UpdatedElements updated;
  updated.matrices = of_owned_matrices(work, stage, shards, elements);
  const double others = trained.all() - of_owned_matrices(work, stage, {}, elements);
  // Without a layout of its own the vocabulary has one owner, too, of what is trained of it.
  const bool divides = is_on(run.settings.layer_wise_layout) || shards.dense <= 1;
  const double vocabulary =
      static_cast<double>(run.model.vocab_size) * run.model.hidden_size / run.parallel.tp;
  const double trained_there =
      std::max(work.holds_embedding(stage) ? work.embedding.trained.all() : 0,
               work.holds_head(stage) ? work.head.trained.all() : 0);
  updated.others =
      fullest_share(others, divides ? 0 : std::min(vocabulary, trained_there), shards.dense);
  return updated;
}

std::vector<WorkItem> orthogonalization(const TrainedMatrix& matrix, const TrainingRun& run) {
  const int divided = matrix.divided;
  const Group group = matrix.expert ? Group::Etp : Group::Tp;
  const MuonTp way = run.settings.muon_tp.value_or(MuonTp::Duplicated);
  const Iterated x = iterated(matrix, divided, way);
  const double steps = run.orthogonal_steps;
  std::vector<WorkItem> items;
  const auto product = [&](double m, double n, double k) {
    items.push_back({.kind = WorkKind::Product,
                     .count = steps,
                     .m = m,
                     .n = n,
                     .k = k,
                     .backward = true,
                     .kernels = steps});
  };
  const auto collective = [&](Collective kind, double bytes) {
    items.push_back(
        {.kind = WorkKind::Collective, .bytes = bytes, .collective = kind, .group = group});
  };
  if (divided > 1 && way == MuonTp::Duplicated)
    collective(Collective::AllGather, matrix.elements_of_rank() * kFp32Bytes);
  product(x.gram, x.gram, x.other);  // X X^T
  if (x.summed)
    for (int i = 0; i < run.orthogonal_steps; ++i)
      collective(Collective::AllReduce, x.gram * x.gram * kHalfBytes);
  product(x.gram, x.gram, x.gram);   // b A + c A A
  product(x.gram, x.other, x.gram);  // a X + B X
  items.push_back({.kind = WorkKind::Stream,
                   .bytes = x.gram * x.other * kPointwiseBytes,
                   .kernels = kPointwiseKernels});
  return items;
}

}  // namespace meshplan::sim

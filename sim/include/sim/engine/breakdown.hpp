// Where the wall time of a step goes, for each rank: every instant in exactly one category, and
// communication only where no computation hides it. Works on predicted and measured traces alike.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace meshplan::program {
enum class Phase;
struct ParallelConfig;
struct Span;
struct Trace;
}  // namespace meshplan::program

namespace meshplan::sim {

enum class Category {
  Forward,
  Backward,
  Recompute,
  Tp,  // exposed tensor-parallel communication, and so on
  Sp,
  Cp,
  Ep,
  Pp,
  Dp,
  Bubble,  // waiting for another stage to start its send, or for the last stage to arrive
  Optimizer,
  Host,   // loading data; nothing issued before the first operation; exposed copies of offloaded
          // activations
  Other,  // nothing in progress between operations
};
constexpr int kNumCategories = 13;

std::string_view name_of(Category category);
/// All categories in order, for tables.
constexpr std::array<Category, kNumCategories> all_categories() {
  return {Category::Forward, Category::Backward, Category::Recompute, Category::Tp,
          Category::Sp,      Category::Cp,       Category::Ep,        Category::Pp,
          Category::Dp,      Category::Bubble,   Category::Optimizer, Category::Host,
          Category::Other};
}

/// Seconds per category.
struct Breakdown {
  std::array<double, kNumCategories> seconds{};
  double& operator[](Category category) { return seconds[static_cast<std::size_t>(category)]; }
  double operator[](Category category) const { return seconds[static_cast<std::size_t>(category)]; }
  double total() const;
  bool operator==(const Breakdown&) const = default;
};

struct RankBreakdown {
  int rank = 0;
  int stands_for = 1;  // ranks that do the same, this one among them
  Breakdown seconds;
  bool operator==(const RankBreakdown&) const = default;
};

/// What the breakdown must know of an operation.
struct SpanKind {
  Category category = Category::Other;
  bool communicates = false;    // or moves data to or from the host beside computation
  bool crosses_stages = false;  // until the last member has arrived, waiting is the pipeline's
};
/// Category of computation on a device.
Category category_of(program::Phase phase);
/// Kind of an operation whose span is complete but for its times.
SpanKind kind_of(const program::Span& span, const program::ParallelConfig& parallel);

/// The spans of a rank in one step.
class RankSpans {
 public:
  /// @param ready  when all members of a communication had arrived
  /// @param of_pipeline  the work of a micro-batch in a pipeline
  void add(const SpanKind& kind, double start, double end, double ready, bool of_pipeline);
  void reserve(std::size_t spans) { pieces_.reserve(spans); }
  double last_end() const { return last_end_; }
  /// Where the time between `begin` and `end` goes; to be asked once.
  Breakdown seconds_between(double begin, double end);

 private:
  /// A span with what the sweep needs to know of it.
  struct Piece {
    double start = 0;
    double end = 0;
    double ready = 0;  // communication across stages: before this, the time is bubble
    Category category = Category::Other;
    bool computes = false;
  };
  static bool ends_before(const Piece& a, const Piece& b);
  Category category_at(double time, const std::vector<const Piece*>& active) const;

  std::vector<Piece> pieces_;
  std::size_t last_computation_ = std::numeric_limits<std::size_t>::max();  // of `pieces_`
  double pipeline_begin_ = std::numeric_limits<double>::infinity();
  double pipeline_end_ = -std::numeric_limits<double>::infinity();
  double last_end_ = 0;
};

/// The time of one step, on the clock of its spans.
struct StepWindow {
  double begin_s = 0;
  double end_s = 0;
};

/// By rank and step: of a simulated trace the period that ends with the rank's last span; of a
/// measured one from the common start to the last end of any rank.
std::map<std::pair<int, int>, StepWindow> step_windows(const program::Trace& trace);

/// One entry per rank that has spans, ascending; seconds of the step_windows(), divided by the
/// number of traced steps if there are several.
std::vector<RankBreakdown> breakdown(const program::Trace& trace);

/// The mean over ranks, and those that they stand for.
Breakdown mean_of(const std::vector<RankBreakdown>& ranks);

}  // namespace meshplan::sim

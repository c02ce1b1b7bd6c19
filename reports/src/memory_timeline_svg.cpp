#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/quoting.hpp"
#include "core/units.hpp"
#include "planner/search/reasons.hpp"
#include "reports/memory_timeline_report.hpp"
#include "timeline_columns.hpp"

namespace meshplan::reports {
namespace {

using sim::MemoryClass;
using sim::MemoryTimeline;

// Pixels.
constexpr int kLeft = 96, kRight = 24, kTop = 66, kBottom = 40;
constexpr int kPlotWidth = 860, kPanelHeight = 118, kGap = 16;

// From the bottom of the stack upwards; blues are what stays, warm colours what comes and goes.
struct Layer {
  MemoryClass memory_class;
  const char* color;
};
constexpr std::array<Layer, sim::kNumMemoryClasses> kLayers = {{
    {MemoryClass::Runtime, "#9aa5b1"},
    {MemoryClass::Communication, "#c3cdd8"},
    {MemoryClass::Weights, "#1f4e79"},
    {MemoryClass::Optimizer, "#3f7fb5"},
    {MemoryClass::Gradients, "#8ab8dc"},
    {MemoryClass::Activations, "#f0a030"},
    {MemoryClass::Transient, "#c0392b"},
}};

/// 1, 2 or 5 times a power of ten, so that about `marks` of them make `range`.
double nice_step(double range, int marks) {
  const double rough = range / marks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

class Drawing {
 public:
  Drawing(std::vector<const MemoryTimeline*> stages, std::vector<double> capacity_bytes)
      : stages_(std::move(stages)), capacity_(std::move(capacity_bytes)) {
    for (const MemoryTimeline* stage : stages_) {
      end_s_ = std::max(end_s_, stage->end_s);
      top_ = std::max(top_, stage->planned_bytes);
    }
    // The capacity is drawn where it does not squeeze everything else.
    constexpr double kRoomForCapacity = 1.6;
    const double largest = *std::ranges::max_element(capacity_);
    shows_capacity_ = largest > 0 && largest <= kRoomForCapacity * top_;
    if (shows_capacity_) top_ = std::max(top_, largest);
    constexpr double kHeadroom = 1.08;
    top_ *= kHeadroom;
  }

  std::string run(const std::string& title) {
    const int panels = static_cast<int>(stages_.size());
    const int height = kTop + panels * (kPanelHeight + kGap) + kBottom;
    const int width = kLeft + kPlotWidth + kRight;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height);
    // A bold letter is about 0.65 of its size wide; a long title gets smaller ones.
    constexpr double kTitleSize = 15, kLetter = 0.65;
    const double fits =
        (kPlotWidth + kRight) / (kLetter * std::max(1.0, static_cast<double>(title.size())));
    text(kLeft, 22, title,
         fmt::format("font-size=\"{:.3g}\" font-weight=\"bold\"", std::min(kTitleSize, fits)));
    legend();
    for (int i = 0; i < panels; ++i) panel(*stages_[at(i)], y_of_panel(i));
    time_axis(y_of_panel(panels - 1) + kPanelHeight);
    return out_ + "</svg>\n";
  }

 private:
  static int y_of_panel(int i) { return kTop + i * (kPanelHeight + kGap); }
  double x_of(double time_s) const {
    return kLeft + kPlotWidth * std::clamp(time_s / end_s_, 0.0, 1.0);
  }
  double y_of(double bytes, int panel_top) const {
    return panel_top + kPanelHeight * (1 - bytes / top_);
  }

  void text(double x, double y, const std::string& what, const std::string& attributes = "") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                        html_text(what));
  }
  void line(double x1, double y1, double x2, double y2, const std::string& attributes) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, attributes);
  }

  void legend() {
    constexpr int kSwatch = 12, kEntry = 123;
    int x = kLeft;
    for (const Layer& layer : kLayers) {
      out_ += fmt::format("<rect x=\"{}\" y=\"36\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x,
                          kSwatch, kSwatch, layer.color);
      text(x + kSwatch + 5, 46, std::string(name_of(layer.memory_class)));
      x += kEntry;
    }
  }

  /// Areas between the sums up to each class; a column is as wide as a pixel.
  void areas(const MemoryTimeline& stage, int top) {
    const auto columns = fullest_in_columns(stage, end_s_, kPlotWidth);
    std::vector<double> below(columns.size(), 0.0);
    for (const Layer& layer : kLayers) {
      std::vector<double> above = below;
      for (std::size_t c = 0; c < columns.size(); ++c) above[c] += columns[c][layer.memory_class];
      if (above != below) area(below, above, layer.color, top);
      below = std::move(above);
    }
  }

  void area(const std::vector<double>& below, const std::vector<double>& above, const char* color,
            int top) {
    std::string path;
    const auto steps = [&](const std::vector<double>& edge, bool forward) {
      for (std::size_t i = 0; i < edge.size(); ++i) {
        const std::size_t c = forward ? i : edge.size() - 1 - i;
        const double from = kLeft + static_cast<double>(c), y = y_of(edge[c], top);
        const bool begins = i == 0, ends = i + 1 == edge.size();
        const std::size_t before = forward ? c - 1 : c + 1;
        if (!begins && !ends && edge[before] == edge[c] && edge[forward ? c + 1 : c - 1] == edge[c])
          continue;
        path += fmt::format("{}{:.0f} {:.2f}L{:.0f} {:.2f}", path.empty() ? "M" : "L",
                            forward ? from : from + 1, y, forward ? from + 1 : from, y);
      }
    };
    steps(above, true);
    steps(below, false);
    out_ += fmt::format("<path d=\"{}Z\" fill=\"{}\"/>\n", path, color);
  }

  void panel(const MemoryTimeline& stage, int top) {
    const double bottom = top + kPanelHeight;
    const double step = nice_step(top_ / kGib, 5) * kGib;
    areas(stage, top);
    for (int mark = 0; mark * step <= top_; ++mark) {
      const double bytes = mark * step;
      const double y = y_of(bytes, top);
      line(kLeft, y, kLeft + kPlotWidth, y, "stroke=\"black\" stroke-opacity=\"0.12\"");
      text(kLeft - 6, y + 4, fmt::format("{:g}", bytes / kGib), "text-anchor=\"end\"");
    }
    if (shows_capacity_) {
      const double y = y_of(capacity_[at(stage.stage)], top);
      line(kLeft, y, kLeft + kPlotWidth, y, "stroke=\"#c0392b\" stroke-dasharray=\"6 4\"");
      text(kLeft + kPlotWidth - 4, y + 13, "capacity",
           "text-anchor=\"end\" fill=\"#c0392b\" font-size=\"11\"");
    }
    line(kLeft, top, kLeft, bottom, "stroke=\"black\"");
    line(kLeft, bottom, kLeft + kPlotWidth, bottom, "stroke=\"black\"");
    text(12, top + kPanelHeight / 2.0 - 2, fmt::format("stage {}", stage.stage),
         "font-weight=\"bold\"");
    text(12, top + kPanelHeight / 2.0 + 14, "GiB", "fill=\"#555\"");
    peak(stage, top);
  }

  void peak(const MemoryTimeline& stage, int top) {
    const double x = x_of(stage.peak.time_s), y = y_of(stage.peak.use.total(), top);
    out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"black\"/>\n", x, y);
    const bool to_the_left = x > kLeft + kPlotWidth * 0.6;
    // On white, so that no line runs through it.
    const std::string halo =
        "font-size=\"11\" paint-order=\"stroke\" stroke=\"white\" stroke-width=\"3\"";
    text(to_the_left ? x - 7 : x + 7, y - 4,
         fmt::format("{} at {:.1f} ms, {}", planner::format_bytes(stage.peak.use.total()),
                     stage.peak.time_s * kMilliseconds, stage.during),
         to_the_left ? halo + " text-anchor=\"end\"" : halo);
  }

  void time_axis(double y) {
    const double end_ms = end_s_ * kMilliseconds;
    const double step = nice_step(end_ms, 10);
    for (int mark = 0; mark * step <= end_ms; ++mark) {
      const double ms = mark * step;
      const double x = x_of(ms / kMilliseconds);
      line(x, y, x, y + 4, "stroke=\"black\"");
      text(x, y + 17, fmt::format("{:g}", ms), "text-anchor=\"middle\"");
    }
    text(kLeft + kPlotWidth, y + 32, "ms", "text-anchor=\"end\" fill=\"#555\"");
  }

  std::vector<const MemoryTimeline*> stages_;
  std::vector<double> capacity_;  // by stage
  bool shows_capacity_ = false;
  double end_s_ = 0, top_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const std::vector<MemoryTimeline>& timelines,
                   const std::vector<double>& capacity_bytes, const std::string& title) {
  return Drawing(first_of_each_stage(timelines), capacity_bytes).run(title);
}

}  // namespace meshplan::reports

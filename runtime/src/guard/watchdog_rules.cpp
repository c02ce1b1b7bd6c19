#include <algorithm>
#include <fmt/format.h>

#include "guard/watchdog.hpp"

namespace meshplan::runtime {

std::string describe(const RankView& view) {
  std::string text = fmt::format("rank {} on {} (pid {}): {}", view.rank, view.host, view.pid,
                                 view.status.empty() ? "no status yet" : view.status);
  if (view.stopped)
    text += fmt::format("; stopped by a signal {:.1f} s ago", view.stopped->value);
  else if (view.state == RankState::Finished)
    text += fmt::format("; finished {:.1f} s ago", view.since_progress.value);
  else if (view.state == RankState::Failed)
    text += "; failed";
  else if (view.state == RankState::Interrupted)
    text += "; interrupted";
  else if (view.state == RankState::Waiting)
    text += view.awaited_rank >= 0 ? fmt::format("; waiting for rank {}", view.awaited_rank)
                                   : std::string("; waiting for its group");
  const bool ends = view.state == RankState::Finished || view.state == RankState::Failed ||
                    view.state == RankState::Interrupted;
  if (!view.stopped && !ends)
    text += fmt::format(", {:.1f} s without progress", view.since_progress.value);
  return text;
}

std::optional<Hang> find_hang(std::span<const RankView> ranks, Seconds timeout) {
  if (std::ranges::any_of(ranks, [](const RankView& view) { return view.traced; }))
    return std::nullopt;
  const auto has_finished = [](const RankView& view) {
    return view.gone || view.state == RankState::Finished;
  };
  const bool all_finished = std::ranges::all_of(ranks, has_finished);
  const RankView* stopped = nullptr;
  const RankView* working = nullptr;
  const RankView* waiting = nullptr;
  bool all_stuck = true;
  for (const RankView& view : ranks) {
    if (view.gone) continue;
    if (view.stopped && (stopped == nullptr || *view.stopped > *stopped->stopped)) stopped = &view;
    if (has_finished(view) && !all_finished) continue;  // it may wait for others, to end with them
    all_stuck = all_stuck && view.since_progress >= timeout;
    const RankView*& longest = view.state == RankState::Waiting ? waiting : working;
    if (longest == nullptr || view.since_progress > longest->since_progress) longest = &view;
  }
  const bool any_left = working != nullptr || waiting != nullptr;
  if (stopped != nullptr && (*stopped->stopped >= timeout || (any_left && all_stuck)))
    return Hang{Hang::Kind::Stopped, stopped->rank};
  if (!all_stuck || !any_left) return std::nullopt;
  if (working != nullptr) return Hang{Hang::Kind::Stuck, working->rank};
  return Hang{Hang::Kind::Deadlock, waiting->rank};
}

}  // namespace meshplan::runtime

#include "saving_report.hpp"

#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <optional>

#include "core/units.hpp"
#include "planner/search/reasons.hpp"

namespace meshplan::reports {
namespace {

using planner::format_bytes;
using planner::format_duration;
using planner::format_seconds;
using planner::PlaceSaving;
using planner::SavingPrediction;

struct SavingPlaceJson {
  int every = 1;
  double interval_s = 0, stall_s = 0, stall_share = 0;
  std::optional<double> complete_after_s;
  bool is_due_early = false;
};

struct DiskSavingJson : SavingPlaceJson {
  double storage_bytes_per_s = 0;
  bool storage_is_assumed = false;
};

struct MemorySavingJson : SavingPlaceJson {
  int copies = 0;
  double node_bytes = 0;
};

struct SavingJson {
  double bytes = 0, bytes_per_rank = 0;
  std::optional<DiskSavingJson> disk;
  std::optional<MemorySavingJson> memory;
};

template <class Visitor>
void saving_place_fields(Visitor& v, SavingPlaceJson& p) {
  v.required("every", p.every, "steps from one save to the next", at_least(1));
  v.required("interval_s", p.interval_s, "these steps, without the stall", at_least(0));
  v.required("stall_s", p.stall_s, "that one save holds up a step", at_least(0));
  v.required("stall_share", p.stall_share, "stall over interval", at_least(0));
  v.required("complete_after_s", p.complete_after_s,
             "from the stall until the save is complete; null without another node to copy to");
  v.required("is_due_early", p.is_due_early,
             "the next save is due before this one is complete: a checkpoint waits, a state in "
             "memory is skipped");
}

template <class Visitor>
void fields(Visitor& v, DiskSavingJson& d) {
  saving_place_fields(v, d);
  v.required("storage_bytes_per_s", d.storage_bytes_per_s, "of the file system", at_least(0));
  v.required("storage_is_assumed", d.storage_is_assumed,
             "neither --storage-bandwidth nor the cluster states it");
}

template <class Visitor>
void fields(Visitor& v, MemorySavingJson& m) {
  saving_place_fields(v, m);
  v.required("copies", m.copies, "of a rank's size in its node's memory", at_least(1));
  v.required("node_bytes", m.node_bytes, "that these take of a node", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, SavingJson& s) {
  v.required("bytes", s.bytes, "of a checkpoint", at_least(0));
  v.required("bytes_per_rank", s.bytes_per_rank, "of the rank that saves most", at_least(0));
  v.required("disk", s.disk, "checkpoints; null if only the end is saved");
  v.required("memory", s.memory, "states in the memory of nodes; null if none are kept");
}

SavingPlaceJson saving_place_json(const PlaceSaving& place) {
  SavingPlaceJson json{.every = place.every,
                       .interval_s = place.interval_s,
                       .stall_s = place.stall_s,
                       .stall_share = place.stall_share,
                       .complete_after_s = {},
                       .is_due_early = std::isfinite(place.lag_s) && place.is_due_early()};
  if (std::isfinite(place.lag_s)) json.complete_after_s = place.lag_s;
  return json;
}

/// "every 20 steps (6.7 min): stall 69 ms, 0.02 % of the time"
std::string stall_text(const PlaceSaving& place) {
  return fmt::format("{} ({}): stall {}, {:.2f} % of the time",
                     place.every == 1 ? "every step" : fmt::format("every {} steps", place.every),
                     format_duration(place.interval_s), format_seconds(place.stall_s),
                     100 * place.stall_share);
}

/// Intervals that pass until a save is complete.
std::int64_t intervals_of(const PlaceSaving& place) {
  return static_cast<std::int64_t>(std::ceil(place.lag_s / place.interval_s));
}

std::string disk_text(const SavingPrediction& saving) {
  const PlaceSaving& disk = *saving.disk;
  std::string text = fmt::format(
      "  disk    {};\n          complete after {}, at {:.3g} GB/s of the file system{}\n",
      stall_text(disk), format_duration(disk.lag_s), saving.storage_bytes_per_s / kGigabyte,
      saving.is_storage_assumed ? " (assumed: 1 GB/s a node; --storage-bandwidth)" : "");
  if (disk.is_due_early())
    text += fmt::format(
        "          too often: the next one waits for it; complete in time every {} steps or more\n",
        intervals_of(disk) * disk.every);
  return text;
}

std::string memory_text(const SavingPrediction& saving) {
  const PlaceSaving& memory = *saving.memory;
  std::string text =
      fmt::format("  memory  {};\n          {} copies of a rank's part, {} of a node; ",
                  stall_text(memory), saving.memory_copies, format_bytes(saving.memory_node_bytes));
  if (!std::isfinite(memory.lag_s)) return text + "no other node to copy to\n";
  text += fmt::format("on the next node after {}\n", format_duration(memory.lag_s));
  if (memory.is_due_early())
    text += fmt::format("          too often: states are skipped meanwhile, one of {} is kept\n",
                        intervals_of(memory));
  return text;
}

}  // namespace

std::string to_text(const SavingPrediction& saving) {
  std::string text = fmt::format("\nsaving  a checkpoint holds {}, {} of the fullest rank\n",
                                 format_bytes(saving.bytes), format_bytes(saving.rank_bytes));
  if (saving.disk) text += disk_text(saving);
  if (saving.memory) text += memory_text(saving);
  return text;
}

Json saving_json(const SavingPrediction& saving) {
  SavingJson json{.bytes = saving.bytes, .bytes_per_rank = saving.rank_bytes};
  if (saving.disk)
    json.disk = DiskSavingJson{saving_place_json(*saving.disk), saving.storage_bytes_per_s,
                               saving.is_storage_assumed};
  if (saving.memory)
    json.memory = MemorySavingJson{saving_place_json(*saving.memory), saving.memory_copies,
                                   saving.memory_node_bytes};
  return write_json(json);
}

}  // namespace meshplan::reports

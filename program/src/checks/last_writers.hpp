// Which operation last wrote each byte of a rank's memory, as its program is played.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "program/memory/address.hpp"

namespace meshplan::program {

/// An instance of a program; of a layer's operations also which one of its list, for a merged pass
/// has many.
struct Writer {
  int instance = 0;
  std::optional<int> operation;
};

class LastWriters {
 public:
  void write(const Address& address, const Writer& writer) {
    const auto [begin, end] = bytes_of(address);
    Runs& runs = runs_of(address);
    erase(runs, begin, end);
    if (begin < end) runs[begin] = {end, writer};
  }

  /// What lies at `from` lies at `to`, too.
  void copy(const Address& from, const Address& to) {
    const std::int64_t shift = to.offset - from.offset;
    std::vector<std::pair<std::int64_t, Run>> copied;
    each_run(from, [&](std::int64_t begin, std::int64_t end, const std::optional<Writer>& writer) {
      if (writer) copied.emplace_back(begin + shift, Run{end + shift, *writer});
    });
    const auto [begin, end] = bytes_of(to);
    Runs& runs = runs_of(to);
    erase(runs, begin, end);
    for (auto& [where, run] : copied) runs[where] = run;
  }

  /// Calls `visit` with the writer of each run of the bytes; none: nobody has written it.
  template <class Visit>
  void each(const Address& address, Visit visit) const {
    each_run(address, [&](std::int64_t, std::int64_t, const std::optional<Writer>& writer) {
      visit(writer);
    });
  }

 private:
  struct Run {
    std::int64_t end = 0;
    Writer writer;
  };
  using Runs = std::map<std::int64_t, Run>;  // by their begin; they do not overlap

  static std::pair<std::int64_t, std::int64_t> bytes_of(const Address& address) {
    return {address.offset, address.offset + address.bytes};
  }
  Runs& runs_of(const Address& address) { return memory_[{address.region, address.slot}]; }

  static void split(Runs& runs, std::int64_t where) {
    auto run = runs.lower_bound(where);
    if (run == runs.begin()) return;
    --run;
    if (run->second.end <= where) return;
    const Run tail = run->second;
    run->second.end = where;
    runs[where] = tail;
  }
  static void erase(Runs& runs, std::int64_t begin, std::int64_t end) {
    split(runs, begin);
    split(runs, end);
    runs.erase(runs.lower_bound(begin), runs.lower_bound(end));
  }

  template <class Visit>
  void each_run(const Address& address, Visit visit) const {
    auto [begin, end] = bytes_of(address);
    const auto found = memory_.find({address.region, address.slot});
    if (found != memory_.end()) {
      const Runs& runs = found->second;
      auto run = runs.upper_bound(begin);
      if (run != runs.begin()) --run;
      for (; run != runs.end() && run->first < end && begin < end; ++run) {
        if (run->second.end <= begin) continue;
        if (run->first > begin) visit(begin, run->first, std::nullopt);
        const std::int64_t stop = std::min(end, run->second.end);
        visit(std::max(begin, run->first), stop, std::optional(run->second.writer));
        begin = stop;
      }
    }
    if (begin < end) visit(begin, end, std::nullopt);
  }

  std::map<std::pair<Region, int>, Runs> memory_;
};

}  // namespace meshplan::program

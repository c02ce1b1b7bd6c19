// Who last touched which bytes of a rank's memory, as its program is played.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/index.hpp"
#include "program/memory/address.hpp"

namespace meshplan::program {

/// Who last wrote these bytes, and who has read them since: the last one on each lane.
class Access {
 public:
  void write(int writer, std::size_t lane) {
    writer_ = writer;
    lane_ = lane;
    lanes_read_ = 0;
  }
  void add_reader(int reader, std::size_t lane) {
    readers_[lane] = reader;
    lanes_read_ |= 1U << lane;
  }
  template <class Visit>
  void each_writer(Visit visit) const {
    if (writer_ != kNobody) visit(writer_, lane_);
  }
  template <class Visit>
  void each_reader(Visit visit) const {
    for (unsigned left = lanes_read_; left != 0; left &= left - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(left));
      visit(readers_[lane], lane);
    }
  }

 private:
  static constexpr int kNobody = -1;

  int writer_ = kNobody;
  std::size_t lane_ = 0;  // of the writer
  unsigned lanes_read_ = 0;
  std::array<int, kNumLanes> readers_{};  // of lanes_read_
};

/// Accesses by byte range; segments do not overlap, are split where a new access begins or ends,
/// and become one where they are written at once. A sorted vector, as most accesses are of just the
/// bytes of a segment.
class ByteMap {
 public:
  template <class Visit>
  void read(std::int64_t begin, std::int64_t end, Visit visit_access) {
    if (begin >= end) return;
    std::size_t i = at_or_behind(begin);
    if (is_segment(i, begin, end)) return visit_access(access(i));
    i = split(i, begin);
    for (std::int64_t covered = begin; covered < end; covered = segments_[i++].end) {
      if (i == begins_.size() || begins_[i] > covered) {  // a gap nobody touched yet
        const std::int64_t stop = i == begins_.size() ? end : std::min(end, begins_[i]);
        insert(i, covered, stop, {});
      }
      if (segments_[i].end > end) split(i + 1, end);
      visit_access(access(i));
    }
  }

  /// Visits what the bytes were accessed by, whose place an instance takes.
  template <class Visit>
  void write(std::int64_t begin, std::int64_t end, int writer, std::size_t lane,
             Visit visit_access) {
    if (begin >= end) return;
    std::size_t first = at_or_behind(begin);
    if (is_segment(first, begin, end)) {
      visit_access(access(first));
      access(first).write(writer, lane);
      return;
    }
    first = split(first, begin);
    const std::size_t behind = split(at_or_behind(end), end);
    if (first == behind) {
      insert(first, begin, end, {});
      access(first).write(writer, lane);
      return;
    }
    for (std::size_t i = first; i < behind; ++i) {
      visit_access(access(i));
      if (i > first) free_.push_back(segments_[i].access);
    }
    begins_[first] = begin;
    segments_[first].end = end;
    access(first).write(writer, lane);
    begins_.erase(place(begins_, first + 1), place(begins_, behind));
    segments_.erase(place(segments_, first + 1), place(segments_, behind));
  }

 private:
  struct Segment {
    std::int64_t end = 0;
    std::size_t access = 0;  // into `accesses_`: what is moved about is small
  };

  Access& access(std::size_t segment) { return accesses_[segments_[segment].access]; }

  /// The first segment that begins at `where` or behind it.
  std::size_t at_or_behind(std::int64_t where) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(begins_, where) - begins_.begin());
  }

  bool is_segment(std::size_t i, std::int64_t begin, std::int64_t end) const {
    return i < begins_.size() && begins_[i] == begin && segments_[i].end == end;
  }

  /// @param i  at_or_behind(where)
  /// @returns the same of the segments as they are after
  std::size_t split(std::size_t i, std::int64_t where) {
    if (i == 0 || segments_[i - 1].end <= where) return i;
    const Access before = access(i - 1);
    insert(i, where, segments_[i - 1].end, before);
    segments_[i - 1].end = where;
    return i;
  }

  void insert(std::size_t i, std::int64_t begin, std::int64_t end, const Access& by) {
    std::size_t own = accesses_.size();
    if (free_.empty()) {
      accesses_.push_back(by);
    } else {
      own = free_.back();
      free_.pop_back();
      accesses_[own] = by;
    }
    begins_.insert(place(begins_, i), begin);
    segments_.insert(place(segments_, i), {end, own});
  }

  template <class Item>
  static typename std::vector<Item>::iterator place(std::vector<Item>& items, std::size_t i) {
    return items.begin() + static_cast<std::ptrdiff_t>(i);
  }

  std::vector<std::int64_t> begins_;  // of the segments: searched more often than all else
  std::vector<Segment> segments_;
  std::vector<Access> accesses_;
  std::vector<std::size_t> free_;  // of `accesses_`
};

/// Of all regions and slots.
class Accesses {
 public:
  explicit Accesses(const Program& program) {
    for (const RegionPlan& region : program.memory.regions)
      memory_.emplace_back(static_cast<std::size_t>(region.slots));
  }

  /// Notes what an instance touches.
  /// @param meet  (other instance, its lane): each that wrote what is touched, or read what is
  ///              written; maybe the instance itself
  template <class Meet>
  void touch(int instance, std::size_t lane, const Footprint& touched, Meet meet) {
    for (const Address& read : touched.reads)
      bytes_of(read).read(read.offset, read.offset + read.bytes, [&](Access& access) {
        access.each_writer(meet);
        access.add_reader(instance, lane);
      });
    for (const Address& write : touched.writes)
      bytes_of(write).write(write.offset, write.offset + write.bytes, instance, lane,
                            [&](const Access& access) {
                              access.each_writer(meet);
                              access.each_reader(meet);
                            });
  }

 private:
  ByteMap& bytes_of(const Address& address) {
    return memory_[static_cast<std::size_t>(address.region)][at(address.slot)];
  }

  std::vector<std::vector<ByteMap>> memory_;  // by region and slot
};

}  // namespace meshplan::program

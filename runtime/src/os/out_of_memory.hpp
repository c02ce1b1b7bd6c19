// What the kernel tells about memory that it refused or took back.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace meshplan::runtime {

/// The number after `key` at the start of a line of "key number" lines; 0 if there is none.
std::int64_t counter_in(std::string_view text, std::string_view key);

/// Processes that the kernel has ended for want of memory, since this object was made.
class OutOfMemoryKills {
 public:
  OutOfMemoryKills();
  /// "the kernel's out-of-memory killer has ended a process of its cgroup, whose limit is 2.00
  /// GiB"; empty if it has ended none that could be this one.
  std::string since_start() const;

 private:
  std::string events_file_;  // of this process's memory cgroup; empty: none
  std::string limit_file_;
  std::int64_t in_cgroup_ = 0;
  std::int64_t on_machine_ = 0;
};

/// One sentence for an allocation that was refused: what was asked, what this process holds, and
/// the limits that it lives under.
std::string describe_refused_memory(const std::exception& error);

}  // namespace meshplan::runtime

// Running one input and judging what happened.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "fuzz/reader.hpp"

namespace meshplan::fuzz {

// Processor time that an input may take, by main_thread_seconds(): a busy machine is no fault. The
// preset with sanitizers is seven times slower (the slowest inputs of the corpus, both ways).
#if defined(__SANITIZE_ADDRESS__)
inline double most_seconds = 70;  // --most-seconds
#else
inline double most_seconds = 10;
#endif
constexpr double kMostSecondsWaited = 240;  // by the clock

/// Processor time of a process's main thread, which takes part in all that is done in parallel:
/// what one would wait for on a machine that does nothing else. 0 of a process that is gone.
double main_thread_seconds(pid_t process);

struct Verdict {
  bool accepted = false;
  /// What must not happen: "internal error: ...", "std::out_of_range: ..."; empty = all is well.
  std::string fault;
};

/// Reads the text and, if `deep`, consumes what was read. Crashes are the caller's to see. Limits
/// the memory of this process to what it holds and the reader's share (a sanitizer's allocator
/// limits it by itself).
Verdict try_input(const Reader& reader, const std::string& text, bool deep);

/// Sends standard output nowhere; what this process holds now is not counted as a reader's.
/// @param shows_errors  leaves standard error, to which sanitizers report
void confine_process(bool shows_errors = false);

/// try_input in a process of its own. @returns what it did wrong; crash, hang and memory included
std::string fault_of(const Reader& reader, const std::string& text, bool shows_errors = false);

/// Faults of one cause have one key: without numbers, places and quoted values.
std::string key_of(const std::string& fault);

/// A smaller input with the same fault: parts are left out while it stays.
std::string minimized(const Reader& reader, const std::string& text, const std::string& fault,
                      double seconds);

}  // namespace meshplan::fuzz

// What scripts may rely on.
#pragma once

#include <array>
#include <string_view>

namespace meshplan::cli {

constexpr int kDone = 0;
constexpr int kFailed = 1;      // the run failed, memory included
constexpr int kBadInput = 2;    // the command line or a file is wrong
constexpr int kInfeasible = 3;  // nothing that was asked for is possible
constexpr int kInterrupted = 130;

struct ExitCode {
  int value;
  std::string_view meaning;
};
/// As help and manual say it.
constexpr std::array<ExitCode, 5> kExitCodes = {{{kDone, "done"},
                                                 {kFailed, "the run failed"},
                                                 {kBadInput, "bad input"},
                                                 {kInfeasible, "nothing feasible"},
                                                 {kInterrupted, "interrupted"}}};

}  // namespace meshplan::cli

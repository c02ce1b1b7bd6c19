// What scripts may rely on.
#pragma once

namespace meshplan::cli {

constexpr int kDone = 0;
constexpr int kFailed = 1;      // the run failed, memory included
constexpr int kBadInput = 2;    // the command line or a file is wrong
constexpr int kInfeasible = 3;  // nothing that was asked for is possible
constexpr int kInterrupted = 130;

}  // namespace meshplan::cli

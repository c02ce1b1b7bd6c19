// The largest sizes that meshplan takes from any file or option (docs/input.md). They lie far above
// what is trained today, and so low that products of sizes stay within 64 bits and an answer takes
// seconds. Every reader checks against these and names the rule.
#pragma once

#include <cstdint>

namespace meshplan::limits {

constexpr std::int64_t kRanks = 1 << 20;
constexpr std::int64_t kListedRanks = 1 << 16;  // described one by one

// Limits of a model.
constexpr std::int64_t kLayers = 1 << 14;
constexpr std::int64_t kPredictionModules = 64;
constexpr std::int64_t kWidth = 1 << 20;       // elements of a token's value; heads; experts
constexpr std::int64_t kVocabulary = 1 << 24;  // tokens
constexpr double kParameters = 1e15;

// Limits of a step.
constexpr std::int64_t kTokens = 2147483647;   // of a micro-batch: kernels count them in 32 bits
constexpr std::int64_t kTasks = 1 << 20;       // of a schedule: stages * chunks * micro-batches
constexpr std::int64_t kDrawnCells = 1 << 22;  // of a schedule's picture: ranks * slots
constexpr std::int64_t kLayerRuns = 1 << 17;   // of programs: their layers * micro-batches
constexpr std::int64_t kMergedLayerRuns = 1 << 19;     // the same where layers run as one operation
constexpr std::int64_t kListedOperations = 1 << 22;    // of programs: what these run
constexpr std::int64_t kPlayedOperations = 3 << 21;    // of all ranks that are simulated
constexpr std::int64_t kRecordedOperations = 1 << 20;  // the same where each one's span is kept
constexpr double kStepElements = 3.6e16;  // 2^55: tokens of a step * layers * widest value

// Limits of quantities.
constexpr double kSeconds = 1e9;
constexpr double kBytes = 1e18;
constexpr double kRate = 1e9;        // GB/s, TFLOP/s, Gb/s
constexpr double kMagnitude = 1e30;  // any number in a file: 0, or 1e-30 to 1e30

// Limits of text: bytes of one line (core/line.hpp).
constexpr std::int64_t kNameBytes = 512;          // a model's, cluster's, device's or level's name
constexpr std::int64_t kLineBytes = 4096;         // any other string of a file; a path
constexpr std::int64_t kScheduleBytes = 1 << 25;  // a stage's tasks

// Limits of the optimizer's settings, which kernels read in fp32.
constexpr double kLeastRate = 1e-30;       // what must not be 0: far below it, fp32 has only 0
constexpr double kBelowOne = 0.999999940;  // of a decay: the largest fp32 below 1; 1 divides by 0

}  // namespace meshplan::limits

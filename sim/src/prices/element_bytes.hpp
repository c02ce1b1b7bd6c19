// Bytes of one element, as sums of fractional counts need them.
#pragma once

namespace meshplan::sim {

inline constexpr double kFp32Bytes = 4;
inline constexpr double kHalfBytes = 2;  // fp16 and bf16
inline constexpr double kMaskBytes = 1;  // of dropout

}  // namespace meshplan::sim

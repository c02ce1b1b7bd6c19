// Damaged copies of a valid file, for readers that must never crash.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace meshplan::program::test {

/// `count` truncations, evenly spaced and all shorter than the object; `count` copies with one byte
/// replaced; `count` with one digit replaced, which mostly stay valid JSON with another number.
inline std::vector<std::string> corruptions(const std::string& valid, std::size_t count) {
  std::vector<std::string> damaged;
  const std::size_t object = valid.rfind('}');
  for (std::size_t i = 0; i < count; ++i) damaged.push_back(valid.substr(0, object * i / count));
  std::mt19937 random(12345);  // NOLINT: the same files every time
  std::uniform_int_distribution<std::size_t> place(0, valid.size() - 1);
  std::uniform_int_distribution<int> byte(0, 255);
  for (std::size_t i = 0; i < count; ++i) {
    damaged.push_back(valid);
    damaged.back()[place(random)] = static_cast<char>(byte(random));
  }
  const std::string kReplacements = "0123456789-.eE";
  std::uniform_int_distribution<std::size_t> pick(0, kReplacements.size() - 1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t digit = valid.find_first_of("0123456789", place(random));
    if (digit == std::string::npos) continue;
    damaged.push_back(valid);
    damaged.back()[digit] = kReplacements[pick(random)];
    if (i % 2 == 0) damaged.back().insert(digit, "99999999");
  }
  return damaged;
}

}  // namespace meshplan::program::test

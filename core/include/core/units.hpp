#pragma once

#include <compare>
#include <cstdint>

namespace meshplan {

/// A number with a unit. The tag keeps bytes from being added to seconds.
template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return {a.value * factor}; }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

constexpr Seconds operator/(Bytes size, BytesPerSecond rate) {
  return {static_cast<double>(size.value) / rate.value};
}
constexpr Seconds operator/(Flops work, FlopsPerSecond rate) {
  return {work.value / rate.value};
}

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kGigabyte = 1e9;      // bytes: what rates count in
constexpr double kMicroseconds = 1e6;  // microseconds in a second
constexpr double kMilliseconds = 1e3;  // milliseconds in a second

}  // namespace meshplan

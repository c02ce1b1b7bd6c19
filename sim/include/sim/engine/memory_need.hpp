// What a rank needs of a memory, and whether that suffices.
#pragma once

#include <string>
#include <string_view>

namespace meshplan::sim {

/// One memory of a rank and what it needs of it: its device's, or its share of the memory of a
/// GPU's host.
struct MemoryNeed {
  double bytes = 0;
  double capacity_bytes = 0;
  bool of_host = false;
  double room_bytes() const { return capacity_bytes - bytes; }
  bool fits() const { return bytes <= capacity_bytes; }
};

/// The one that decides whether a rank's plan fits: the host's only where it does not suffice and
/// lacks more than the device.
inline const MemoryNeed& deciding(const MemoryNeed& device, const MemoryNeed& host) {
  return !host.fits() && host.room_bytes() < device.room_bytes() ? host : device;
}

/// Whether a rank's memory suffices, as far as its need is known.
enum class MemoryVerdict {
  Fits,
  Tight,  // it fits, but by less than the margin
  DoesNotFit,
};
/// @param margin  part of the capacity: the reserve, or more where predictions err by more
inline MemoryVerdict verdict_of(const MemoryNeed& need, double margin) {
  if (!need.fits()) return MemoryVerdict::DoesNotFit;
  return need.bytes <= (1 - margin) * need.capacity_bytes ? MemoryVerdict::Fits
                                                          : MemoryVerdict::Tight;
}
/// "fits", "tight" or "does not fit".
std::string_view name_of(MemoryVerdict verdict);
/// "does_not_fit"
std::string key_of(MemoryVerdict verdict);

/// What users of a stack read off their screens, of the rank that decides.
struct ShownMemory {
  double allocated_bytes = 0;  // torch.cuda.max_memory_allocated
  double reserved_bytes = 0;   // torch.cuda.max_memory_reserved
  double device_bytes = 0;     // nvidia-smi
  bool operator==(const ShownMemory&) const = default;
};

}  // namespace meshplan::sim

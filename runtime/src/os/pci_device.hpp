// What Linux knows about a device on the PCI bus.
#pragma once

#include <optional>
#include <string>

namespace meshplan::runtime {

struct PciDevice {
  std::string
      link;  // "32.0 GT/s PCIe x16": the fastest that slot and device allow; empty = not known
  std::optional<int> numa_node;  // absent: not known, or a machine with one
  bool operator==(const PciDevice&) const = default;
};

/// @param address  "0000:3B:00.0", in either case
/// @param devices  the folder of all devices. What cannot be read keeps its default
PciDevice read_pci_device(const std::string& address,
                          const std::string& devices = "/sys/bus/pci/devices");

}  // namespace meshplan::runtime

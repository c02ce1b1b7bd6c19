#include "os/pci_device.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>

namespace meshplan::runtime {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

PciDevice read_pci_device(const std::string& address, const std::string& devices) {
  std::string name = address;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  const std::string folder = devices + "/" + name + "/";
  PciDevice device;
  // The current speed is no use: an idle GPU slows its link down.
  const std::string speed = first_line(folder + "max_link_speed");
  const std::string width = first_line(folder + "max_link_width");
  if (!speed.empty() && !width.empty()) device.link = speed + " x" + width;
  const std::string node = first_line(folder + "numa_node");
  int number = -1;  // as Linux says that there is none
  std::from_chars(node.data(), node.data() + node.size(), number);
  if (number >= 0) device.numa_node = number;
  return device;
}

}  // namespace meshplan::runtime

#pragma once

#include <cstdint>
#include <string>

namespace meshplan::runtime {

/// Bytes per second at which one process writes files below a folder durably (fsync included), as a
/// checkpoint is written: the median of three files, which are removed. Other nodes and their share
/// of the file system are not measured.
/// @param bytes  of each file, above 0
/// @throws IoError if the folder cannot be written to or is full
double measure_storage(const std::string& folder, std::int64_t bytes);

}  // namespace meshplan::runtime

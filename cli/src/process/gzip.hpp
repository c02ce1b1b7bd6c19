// Files that may be packed by gzip: traces of other tools usually are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshplan::cli {

/// No file is unpacked beyond this: a small one may hold terabytes of zeros.
constexpr std::size_t kMostUnpackedBytes = std::size_t{1} << 30;

/// Does the text begin as gzip's files do?
bool is_gzip(std::string_view text);

/// @throws ConfigError naming the file for what is damaged, cut off, or larger than `most_bytes`
std::string gunzip(std::string_view packed, const std::string& file,
                   std::size_t most_bytes = kMostUnpackedBytes);
/// The same bytes each time: without a name and a date.
std::string gzip(std::string_view text);

/// As read_file, unpacked if it is packed.
std::string read_unpacked_file(const std::string& path);
/// As write_file, packed if the path ends in .gz.
void write_packed_file(const std::string& path, std::string_view text);

}  // namespace meshplan::cli

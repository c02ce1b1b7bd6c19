// Files that may be packed by gzip: traces of other tools usually are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text_blocks.hpp"

namespace meshplan::cli {

/// No file is read or unpacked beyond this: a small one may hold terabytes of zeros.
constexpr std::size_t kMostUnpackedBytes = std::size_t{1} << 30;

/// Does the text begin as gzip's files do?
bool is_gzip(std::string_view text);

/// @throws ConfigError naming the file for what is damaged, cut off, or larger than `most_bytes`
std::string gunzip(std::string_view packed, const std::string& file,
                   std::size_t most_bytes = kMostUnpackedBytes);
/// The same bytes each time: without a name and a date.
std::string gzip(std::string_view text);

/// The blocks of what comes packed. @throws as gunzip, once its blocks come to what is wrong
TextBlocks gunzip_blocks(TextBlocks packed, const std::string& file,
                         std::size_t most_bytes = kMostUnpackedBytes);
/// The blocks of file_blocks, unpacked if they are packed; not more than kMostUnpackedBytes.
TextBlocks unpacked_blocks(const std::string& path);
/// As write_file, packed if the path ends in .gz.
void write_packed_file(const std::string& path, std::string_view text);

}  // namespace meshplan::cli

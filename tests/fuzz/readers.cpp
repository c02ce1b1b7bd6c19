#include <iterator>

#include "fuzz/reader.hpp"

namespace meshplan::fuzz {

std::vector<Reader> all_readers() {
  std::vector<Reader> all;
  for (auto* some : {text_readers, measured_readers, import_readers, format_readers, export_readers,
                     file_readers, command_readers})
    for (Reader& reader : some()) all.push_back(std::move(reader));
  return all;
}

}  // namespace meshplan::fuzz

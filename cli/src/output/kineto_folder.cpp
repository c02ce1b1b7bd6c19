#include "output/kineto_folder.hpp"

#include <fmt/format.h>

#include "process/folders.hpp"
#include "process/gzip.hpp"
#include "program/trace/kineto_files.hpp"

namespace meshplan::cli {

void write_kineto_folder(const std::string& folder, const program::Trace& trace) {
  std::vector<FolderFile> files;
  for (const program::KinetoFile& file : program::to_kineto_files(trace))
    files.push_back({.name = fmt::format("rank-{}.json.gz", file.rank), .text = gzip(file.text)});
  write_folder(folder, files);
}

}  // namespace meshplan::cli

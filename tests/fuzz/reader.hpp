// What reads input: one entry for each file format, table and command line that meshplan takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace meshplan::fuzz {

/// Work on what was read: validation's other half, where internal errors hide. It may refuse, too.
using Consumer = std::function<void()>;

struct Reader {
  std::string name;        // also the folder of its files in tests/fuzz/corpus
  std::size_t weight;      // inputs in a round: cheap readers take more
  std::size_t deep_every;  // one of so many inputs is consumed, too, if it is accepted
  bool names_file;         // every refusal must name the file
  /// @throws what the product throws; the consumer is empty where nothing is left to do
  std::function<Consumer(const std::string& text)> read;
  std::vector<std::string> seeds;                 // besides those in the corpus
  std::size_t most_bytes = std::size_t{1} << 30;  // that reading and consuming may take
};

/// What refusals of readers with `names_file` must hold.
constexpr const char* kFile = "fuzzed-input";

/// Plans, models, clusters and schedules; what was measured; what other tools write; configurations
/// of other training stacks; plans that are exported to these; files that are mapped or lie in
/// folders; the command line.
std::vector<Reader> all_readers();
std::vector<Reader> text_readers();
std::vector<Reader> measured_readers();
std::vector<Reader> import_readers();
std::vector<Reader> format_readers();
std::vector<Reader> export_readers();
std::vector<Reader> file_readers();
std::vector<Reader> command_readers();

}  // namespace meshplan::fuzz

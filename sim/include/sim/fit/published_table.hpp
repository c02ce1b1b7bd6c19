// Reads tables of published runs (CSV, one measured run a line) into TrainingRuns. Names of rows,
// families, sources and models are labels: no prediction reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

enum class MemoryKind { Allocated, Reserved, Visible };

struct PublishedRow {
  std::string id, family, suite, model;  // labels
  TrainingRun run;
  std::optional<double> step_time_s;   // measured
  std::optional<double> peak_mem_gib;  // measured
  MemoryKind memory_kind = MemoryKind::Allocated;
  std::string error;  // why the row is no run; empty = it is one
  std::string note;   // what is predicted otherwise than stated; empty = nothing
};

/// A table may have a column "release", of the software; one that its profile cannot place is left
/// out, and noted.
/// @throws ConfigError if the header lacks a column, naming it; a bad row gets its `error` instead
std::vector<PublishedRow> parse_published_table(std::string_view text, const std::string& file);

/// Gives rows the releases of their software out of a CSV file with the columns id, software and
/// release, one row a line.
/// @throws ConfigError naming the line: for a row that the table lacks, with the nearest one, that
/// is of other software, or that names another release itself
void take_releases(std::string_view text, const std::string& file, std::vector<PublishedRow>& rows);

}  // namespace meshplan::sim

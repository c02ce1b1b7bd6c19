// What saving cost a run, as JSON ("saving" of a run's summary): one declaration for what is
// written and read.
#pragma once

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/trace/saving_report.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, PredictedSave& p) {
  v.required("stall_s", p.stall_s, "that one save holds up a step", between(0, limits::kSeconds));
  v.required("bytes_per_rank", p.bytes, "of the rank that saves most", between(0, limits::kBytes));
}

template <class Visitor>
void fields(Visitor& v, SavingTimes& s) {
  v.required("saves", s.saves, "while the run went on", at_least(0));
  v.required("skipped", s.skipped, "because the one before was not finished", at_least(0));
  v.required("stall_s", s.stall_s, "that steps were held up, all saves together",
             between(0, limits::kSeconds));
  v.required("stall_share", s.stall_share, "of the time of all steps", at_least(0));
  v.required("bytes_per_rank", s.bytes, "of the rank that saves most", between(0, limits::kBytes));
  v.stated("predicted", s.predicted, "of one save");
}

template <class Visitor>
void fields(Visitor& v, SavingReport& s) {
  v.required("disk", s.disk, "checkpoints");
  v.required("memory", s.memory, "states in the memory of the job's nodes");
}

}  // namespace meshplan::program

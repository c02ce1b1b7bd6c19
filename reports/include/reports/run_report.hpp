// What `meshplan run` shows while it trains and when it is done.
#pragma once

#include <optional>
#include <string>

#include "program/trace.hpp"

namespace meshplan::reports {

struct RunHeader {
  program::Plan plan;
  std::string device;  // of each rank
  int machines = 1;
  bool oversubscribed = false;
  std::string data;
};
std::string to_text(const RunHeader& header);

struct StepLine {
  int step = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  std::optional<double> evaluation_loss;
};
std::string step_line(const StepLine& step, const program::Plan& plan);

struct RunSummary {
  program::Trace trace;
  double arena_bytes = 0;  // of the rank that holds most
  double resident_after_first_step = 0;
  double resident_at_end = 0;
};
std::string to_text(const RunSummary& summary);
std::string to_json(const RunSummary& summary);

}  // namespace meshplan::reports

#include "options/whole_run/training_run_options.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::cli {

void add_training_run_options(Command& command, TrainingRunOptions& options) {
  planner::TrainingRunQuestion& question = options.question;
  command
      .option("--tokens", options.tokens,
              "to train on, for example 15e12: says how long it takes and what it costs")
      .option("--price-per-gpu-hour", question.price_per_device_hour,
              "in any currency; default: the cluster's list price on demand, where it is public")
      .option("--gpu-watts", question.watts_per_device,
              "of a busy device with its share of the node; default: the device's power limit");
}

std::optional<planner::TrainingRunQuestion> training_run_question(const TrainingRunOptions& options,
                                                                  const sim::Cluster& cluster) {
  planner::TrainingRunQuestion question = options.question;
  if (!options.tokens) {
    if (question.price_per_device_hour || question.watts_per_device)
      throw ConfigError(
          "prices and watts are of a whole run: add --tokens, for example --tokens 1e12");
    return std::nullopt;
  }
  question.tokens = *options.tokens;
  const bool listed = cluster.about && cluster.about->usd_per_device_hour;
  if (!question.price_per_device_hour && listed) {
    question.price_per_device_hour = cluster.about->usd_per_device_hour;
    question.price_of = fmt::format("list price of {}", cluster.name);
    if (!cluster.about->price_of.empty()) question.price_of += ", " + cluster.about->price_of;
  }
  if (!question.watts_per_device && cluster.device.power_w > 0)
    question.watts_per_device = cluster.device.power_w;
  return question;
}

}  // namespace meshplan::cli

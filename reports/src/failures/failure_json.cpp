#include "core/json_text.hpp"
#include "failures/failure_fields.hpp"
#include "planner/search/space.hpp"
#include "reports/failures/failure_report.hpp"

namespace meshplan::reports {
namespace {

struct PlaceJson {
  planner::CheckpointPlace place = planner::CheckpointPlace::Storage;
  bool chosen = false;
  std::optional<GoodputJson> closed_form;
  std::optional<planner::FailurePlay> played;
};

struct IntervalJson {
  double interval_s = 0;
  planner::FailurePlay played;
};

struct SparesJson {
  int spare_nodes = 0;
  planner::FailurePlay played;
};

struct StudyJson {
  int schema_version = 1;
  std::string description, cluster;
  double step_time_s = 0, effective_step_s = 0, device_mtbf_hours = 0;
  int nodes = 1, devices = 1, spare_nodes = 0;
  planner::SmallerWorld smaller_world = planner::SmallerWorld::KeepBatch;
  double detection_s = 0, start_s = 0, repair_s = 0;
  std::vector<std::string> assumed;
  double days = 0;
  int trials = 0;
  std::int64_t seed = 0;
  GoodputJson closed_form;
  planner::FailurePlay played;
  std::vector<PlaceJson> checkpoints;
  std::vector<IntervalJson> intervals;
  std::vector<SparesJson> spares;
  int spares_worth_having = 0;
};

template <class Visitor>
void fields(Visitor& v, PlaceJson& p) {
  v.required("place", p.place, "where a checkpoint must be before the job can restart from it");
  v.required("chosen", p.chosen, "is it what was asked for?");
  v.required("closed_form", p.closed_form, "null of a partner's memory on a single node");
  v.required("played", p.played, "null of a partner's memory on a single node");
}

template <class Visitor>
void fields(Visitor& v, IntervalJson& i) {
  v.required("interval_s", i.interval_s, "of training between checkpoints", at_least(0));
  v.required("played", i.played, "with it");
}

template <class Visitor>
void fields(Visitor& v, SparesJson& s) {
  v.required("spare_nodes", s.spare_nodes, "that stand by", at_least(0));
  v.required("played", s.played, "with them");
}

template <class Visitor>
void fields(Visitor& v, StudyJson& s) {
  v.required("schema_version", s.schema_version, "of this form", between(1, 1));
  v.required("description", s.description, "the plan in a line");
  v.required("cluster", s.cluster, "its name");
  v.required("step_time_s", s.step_time_s, "predicted seconds of a step", at_least(0));
  v.required("effective_step_s", s.effective_step_s, "over the played goodput", at_least(0));
  v.required("device_mtbf_hours", s.device_mtbf_hours, "mean time between failures of a device",
             at_least(0));
  v.required("nodes", s.nodes, "of the job", at_least(1));
  v.required("devices", s.devices, "of the job", at_least(1));
  v.required("spare_nodes", s.spare_nodes, "beside them", at_least(0));
  v.required("smaller_world", s.smaller_world, "what the job does on fewer nodes");
  v.required("detection_s", s.detection_s, "from a failure until the job is stopped", at_least(0));
  v.required("start_s", s.start_s, "from there until all processes have started", at_least(0));
  v.required("repair_s", s.repair_s, "until a node that failed is back", at_least(0));
  v.required("assumed", s.assumed, "what was filled in, each a line");
  v.required("days", s.days, "of a trial", at_least(0));
  v.required("trials", s.trials, "that were played", at_least(1));
  v.required("seed", s.seed, "of the trials", at_least(0));
  v.required("closed_form", s.closed_form, "of the same job");
  v.required("played", s.played, "the trials");
  v.required("checkpoints", s.checkpoints, "in a file system and in a partner's memory");
  v.required("intervals", s.intervals, "between checkpoints, around the best");
  v.required("spares", s.spares, "numbers of spare nodes, from 0");
  v.required("spares_worth_having", s.spares_worth_having,
             "spare nodes with the most useful time per paid device time", at_least(0));
}

StudyJson study_json(const planner::FailureStudy& study) {
  StudyJson json{.description = planner::describe(planner::candidate_of(study.plan)),
                 .cluster = study.cluster.name,
                 .step_time_s = study.step_time_s,
                 .effective_step_s = study.play.effective_s(study.step_time_s),
                 .device_mtbf_hours = study.assumptions.device_mtbf_hours,
                 .nodes = study.costs.num_nodes,
                 .devices = study.costs.devices,
                 .spare_nodes = study.costs.spare_nodes,
                 .smaller_world = study.assumptions.smaller_world,
                 .detection_s = study.costs.detection_s,
                 .start_s = study.costs.start_s,
                 .repair_s = study.costs.repair_s,
                 .assumed = study.assumed,
                 .days = study.options.days,
                 .trials = study.options.trials,
                 .seed = static_cast<std::int64_t>(study.options.seed),
                 .closed_form = goodput_json(study.closed_form, study.step_time_s),
                 .played = study.play,
                 .checkpoints = {},
                 .intervals = {},
                 .spares = {},
                 .spares_worth_having = study.spares[study.worth_having].spare_nodes};
  for (const planner::PlacePlay& place : study.places) {
    PlaceJson one{.place = place.place, .chosen = place.chosen, .closed_form = {}, .played = {}};
    if (place.closed_form) one.closed_form = goodput_json(*place.closed_form, study.step_time_s);
    one.played = place.play;
    json.checkpoints.push_back(std::move(one));
  }
  for (const planner::IntervalPlay& interval : study.intervals)
    json.intervals.push_back({interval.interval_s, interval.play});
  for (const planner::SparesPlay& spares : study.spares)
    json.spares.push_back({spares.spare_nodes, spares.play});
  return json;
}

}  // namespace

std::string to_json(const planner::FailureStudy& study) {
  return json_text(write_json(study_json(study))) + "\n";
}

std::string failure_study_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "result of meshplan simulate --failures --json"}};
  root.update(json_schema<StudyJson>());
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports

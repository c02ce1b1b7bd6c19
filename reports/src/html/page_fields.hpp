// What a page holds, in the form that its scripts read: one declaration for what is written and for
// its schema. Seconds and bytes throughout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "html/packed_bars.hpp"
#include "planner/search/reasons.hpp"

namespace meshplan::reports {

struct LineJson {
  std::string name;
  std::string text;
};

struct PartJson {
  std::string name;
  std::string words;
  double seconds = 0;
};

struct TermJson {
  std::string name;
  double seconds = 0;
  double sigma = 0;
  std::string source;
  std::string measure;
};

struct SensitivityJson {
  std::string figure;
  double seconds_of_10_percent = 0;
};

struct MemoryStageJson {
  int stage = 0;
  int rank = 0;
  double end_s = 0;
  double planned_bytes = 0;
  double capacity_bytes = 0;
  double peak_bytes = 0;
  double peak_s = 0;
  std::string during;
  std::vector<std::vector<double>> mib;
};

struct MemoryJson {
  std::vector<std::string> classes;
  std::vector<MemoryStageJson> stages;
};

struct LevelJson {
  std::string name;
  int ranks_per_group = 0;
  double latency_us = 0;
  double link_gb_per_s = 0;
};

struct TrafficJson {
  std::string category;
  std::string group;
  int level = -1;
  std::string operation;
  double messages = 0;
  double bytes = 0;
  double sent_bytes = 0;
  double alone_s = 0;
  double exposed_s = 0;
};

struct NodeTypeJson {
  std::string device;
  int nodes = 0;
};

struct MeshJson {
  int ranks = 0;
  int ranks_per_node = 0;
  std::vector<NodeTypeJson> node_types;
  std::vector<std::string> axes;
  std::vector<int> degrees;
  std::vector<std::vector<int>> coordinates;
};

struct TimelineJson {
  bool measured = false;
  std::string source;
  double step_s = 0;
  int microbatches = 0;
  int all_microbatches = 0;
  std::string note;
  std::vector<BarOperation> operations;
  std::vector<BarRow> rows;
};

struct CellJson {
  int tp = 1;
  int pp = 1;
  std::optional<double> step_time_s;
  std::string description;
  double peak_memory_bytes = 0;
  std::string reason;
};

struct PointJson {
  std::string description;
  double step_time_s = 0;
  double peak_memory_bytes = 0;
};

struct PageSearchJson {
  double seconds = 0;
  RawJson outcome;
  std::vector<std::string> reasons;
  std::vector<CellJson> cells;
  std::vector<PointJson> frontier;
};

struct PageJson {
  int schema_version = 1;
  std::string generator;
  std::string title;
  std::string description;
  std::vector<LineJson> header;
  std::vector<std::string> words;
  std::vector<std::string> reasons;
  std::string verdict;
  std::vector<std::string> categories;
  RawJson simulation;
  std::vector<PartJson> parts;
  std::vector<TermJson> terms;
  std::vector<SensitivityJson> sensitivities;
  std::string rule_of_thumb;
  MemoryJson memory;
  std::vector<LevelJson> levels;
  std::vector<TrafficJson> traffic;
  MeshJson mesh;
  std::vector<TimelineJson> timelines;
  std::optional<RawJson> comparison;
  std::optional<PageSearchJson> search;
};

template <class Visitor>
void fields(Visitor& v, LineJson& l) {
  v.required("name", l.name, "what it is about");
  v.required("text", l.text, "in words");
}

template <class Visitor>
void fields(Visitor& v, PartJson& p) {
  v.required("name", p.name, "part of a step, as `meshplan explain --json` names it");
  v.required("words", p.words, "the same in words");
  v.required("seconds", p.seconds, "of the step");
}

template <class Visitor>
void fields(Visitor& v, TermJson& t) {
  v.required("name", t.name, "term of the prediction");
  v.required("seconds", t.seconds, "of the step");
  v.required("sigma", t.sigma, "relative standard deviation of these", at_least(0));
  v.required("source", t.source, "what the term rests on");
  v.required("measure", t.measure, "what would narrow it");
}

template <class Visitor>
void fields(Visitor& v, SensitivityJson& s) {
  v.required("figure", s.figure, "of the cluster");
  v.required("seconds_of_10_percent", s.seconds_of_10_percent,
             "that the step takes longer with 1.1 times the figure");
}

template <class Visitor>
void fields(Visitor& v, MemoryStageJson& m) {
  v.required("stage", m.stage, "of the pipeline", at_least(0));
  v.required("rank", m.rank, "that stands for the stage", at_least(0));
  v.required("end_s", m.end_s, "when its last operation ends");
  v.required("planned_bytes", m.planned_bytes, "that the plan holds for the rank", at_least(0));
  v.required("capacity_bytes", m.capacity_bytes, "that a rank may use", at_least(0));
  v.required("peak_bytes", m.peak_bytes, "most that lives at once", at_least(0));
  v.required("peak_s", m.peak_s, "when it does");
  v.required("during", m.during, "what runs then");
  v.required("mib", m.mib,
             "by class: MiB in each of equal parts of the step, when most is held; one number "
             "where it never changes");
}

template <class Visitor>
void fields(Visitor& v, MemoryJson& m) {
  v.required("classes", m.classes, "what memory holds");
  v.required("stages", m.stages, "over the step; empty without a timeline");
}

template <class Visitor>
void fields(Visitor& v, LevelJson& l) {
  v.required("name", l.name, "level of the fabric, innermost first");
  v.required("ranks_per_group", l.ranks_per_group, "0 = all", at_least(0));
  v.required("latency_us", l.latency_us, "of a hop", at_least(0));
  v.required("link_gb_per_s", l.link_gb_per_s, "of a link, one way", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, TrafficJson& t) {
  v.required("category", t.category, "of the breakdown");
  v.required("group", t.group, "of the ranks that communicate");
  v.required("level", t.level, "index of the outermost level that it needs; -1 = none",
             at_least(-1));
  v.required("operation", t.operation, "collective, or send; empty: all of them");
  v.required("messages", t.messages, "of a rank in a step, the mean over ranks", at_least(0));
  v.required("bytes", t.bytes, "that it passes in", at_least(0));
  v.required("sent_bytes", t.sent_bytes, "that it sends, where none are sent twice", at_least(0));
  v.required("alone_s", t.alone_s, "that they take, each alone", at_least(0));
  v.required("exposed_s", t.exposed_s, "that no computation hides", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, NodeTypeJson& n) {
  v.required("device", n.device, "of its nodes");
  v.required("nodes", n.nodes, "of this type, in order", at_least(1));
}

template <class Visitor>
void fields(Visitor& v, MeshJson& m) {
  v.required("ranks", m.ranks, "in all", at_least(1));
  v.required("ranks_per_node", m.ranks_per_node, "in order of their numbers", at_least(1));
  v.required("node_types", m.node_types, "first nodes first");
  v.required("axes", m.axes, "that the ranks are laid out along");
  v.required("degrees", m.degrees, "of the axes");
  v.required("coordinates", m.coordinates, "of each rank along the axes; the first ranks of many");
}

template <class Visitor>
void fields(Visitor& v, BarOperation& o) {
  v.required("name", o.name, "operation");
  v.required("phase", o.phase, "what it is for");
  v.required("category", o.category, "index into the page's categories", at_least(0));
  v.required("group", o.group, "of a communication; empty for computation");
  v.required("peer", o.peer, "world rank at the other end; -1 = none", at_least(-1));
  v.required("bytes", o.bytes, "moved, by the rank", at_least(0));
  v.required("flops", o.flops, "executed", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, BarRow& r) {
  v.required("rank", r.rank, "world rank", at_least(0));
  v.required("stage", r.stage, "of the pipeline", at_least(0));
  v.required("lane", r.lane, "of the rank");
  v.required("bars", r.bars, "packed", at_least(0));
  v.required("packed", r.packed,
             "base64 of LEB128 numbers, five a bar: index of the operation; micro-batch, layer and "
             "start in ns, each zigzag against the bar before; duration in ns",
             at_most(limits::kBytes));
}

template <class Visitor>
void fields(Visitor& v, TimelineJson& t) {
  v.required("measured", t.measured, "false: predicted");
  v.required("source", t.source, "what made the trace");
  v.required("step_s", t.step_s, "from the step's common start to its last end", at_least(0));
  v.required("microbatches", t.microbatches, "that it shows", at_least(0));
  v.required("all_microbatches", t.all_microbatches, "of the step", at_least(0));
  v.required("note", t.note, "why it shows fewer");
  v.required("operations", t.operations, "that bars name");
  v.required("rows", t.rows, "lanes of ranks, by stage and rank");
}

template <class Visitor>
void fields(Visitor& v, CellJson& c) {
  v.required("tp", c.tp, "tensor parallel size", at_least(1));
  v.required("pp", c.pp, "pipeline stages", at_least(1));
  v.required("step_time_s", c.step_time_s, "of the fastest plan, as estimated; null: none fits");
  v.required("description", c.description, "that plan");
  v.required("peak_memory_bytes", c.peak_memory_bytes, "of it", at_least(0));
  v.required("reason", c.reason, "why there is none");
}

template <class Visitor>
void fields(Visitor& v, PointJson& p) {
  v.required("description", p.description, "the plan in a line");
  v.required("step_time_s", p.step_time_s, "predicted", at_least(0));
  v.required("peak_memory_bytes", p.peak_memory_bytes, "of the rank with the least room",
             at_least(0));
}

template <class Visitor>
void fields(Visitor& v, PageSearchJson& s) {
  v.required("seconds", s.seconds, "that it took", at_least(0));
  v.required("outcome", s.outcome, "what `meshplan plan --json` prints, without the plan files");
  v.required("reasons", s.reasons, "for its first plan");
  v.required("cells", s.cells, "the fastest plan of each tp and pp");
  v.required("frontier", s.frontier, "plans of which none is both faster and smaller");
}

template <class Visitor>
void fields(Visitor& v, PageJson& p) {
  v.required("schema_version", p.schema_version, "of this form", between(1, 1));
  v.required("generator", p.generator, "what wrote it");
  v.required("title", p.title, "of the page");
  v.required("description", p.description, "the plan in a line");
  v.required("header", p.header, "model, cluster, step, plan");
  v.required("words", p.words, "the plan in words, a sentence each");
  v.required("reasons", p.reasons, "that the plan's file gives for it");
  v.required("verdict", p.verdict, "does it fit?");
  v.required("categories", p.categories, "of the breakdown and of bars");
  v.required("simulation", p.simulation,
             "what `meshplan simulate --json` prints, without the plan");
  v.required("parts", p.parts, "where the step goes; they sum to it");
  v.required("terms", p.terms, "of the prediction, those that know least first");
  v.required("sensitivities", p.sensitivities, "what the cluster's figures do to the step");
  v.required("rule_of_thumb", p.rule_of_thumb, "the plan that is usually advised");
  v.required("memory", p.memory, "of each stage's first rank");
  v.required("levels", p.levels, "of the fabric");
  v.required("traffic", p.traffic, "on each of them");
  v.required("mesh", p.mesh, "which rank is where");
  v.required("timelines", p.timelines, "predicted, then measured");
  v.required("comparison", p.comparison,
             "what `meshplan compare --json` prints; null without a run");
  v.required("search", p.search, "null if none was asked for");
}

}  // namespace meshplan::reports

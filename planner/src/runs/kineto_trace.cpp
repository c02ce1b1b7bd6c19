// The format: pytorch/kineto, libkineto/src/output_json.cpp; sizes of NCCL's kernels:
// ParamCommsUtils of PyTorch ("In msg nelems", "Group size", ...).
#include "planner/runs/kineto_trace.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <span>
#include <tuple>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "core/units.hpp"

namespace meshplan::planner {
namespace {

using program::Collective;

/// An event of the list, with what messages call it.
struct TraceEvent {
  const Json& json;
  std::string place;  // "trace.json: traceEvents[12]"
};

const Json* member(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

std::string text_at(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

double seconds_at(const TraceEvent& event, std::string_view key) {
  const Json* value = member(event.json, key);
  if (value == nullptr) throw ConfigError(fmt::format("{}: '{}' is missing", event.place, key));
  const double us = value->is_number() ? value->get<double>() : -1;
  if (!(us >= 0 && us <= limits::kMagnitude))
    throw ConfigError(
        fmt::format("{}: {}: {}, expected microseconds", event.place, key, quoted(*value)));
  return us / kMicroseconds;
}

std::optional<std::int64_t> whole_number(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

/// A thread's or a stream's name: a number or a text.
std::string thread_of(const Json& event) {
  const Json* pid = member(event, "pid");
  const Json* tid = member(event, "tid");
  return fmt::format("{}/{}", pid == nullptr ? "" : pid->dump(), tid == nullptr ? "" : tid->dump());
}

/// "[[4096, 1024], [1024], []]" as shapes; what is no list of numbers is an empty shape.
std::vector<std::vector<std::int64_t>> shapes_of(const Json& args) {
  std::vector<std::vector<std::int64_t>> shapes;
  const Json* dims = member(args, "Input Dims");
  if (dims == nullptr) dims = member(args, "Input dims");
  if (dims == nullptr || !dims->is_array()) return shapes;
  for (const Json& of_input : *dims) {
    std::vector<std::int64_t>& shape = shapes.emplace_back();
    if (!of_input.is_array()) continue;
    for (const Json& size : of_input)
      if (size.is_number_integer()) shape.push_back(size.get<std::int64_t>());
  }
  return shapes;
}

std::int64_t bytes_of_type(std::string_view dtype) {
  if (dtype == "Double" || dtype == "Long") return 8;
  if (dtype == "Float" || dtype == "Int") return 4;
  if (dtype == "BFloat16" || dtype == "Half" || dtype == "Short") return 2;
  return 1;
}

std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// By the name that PyTorch gives the call ("_allgather_base"), or else the kernel has.
std::optional<Collective> collective_named(std::string_view name) {
  const std::string letters = letters_of(name);
  const auto has = [&](std::string_view part) { return letters.find(part) != std::string::npos; };
  if (has("allreduce")) return Collective::AllReduce;
  if (has("reducescatter")) return Collective::ReduceScatter;
  if (has("allgather")) return Collective::AllGather;
  if (has("alltoallv")) return Collective::AllToAllV;
  if (has("alltoall")) return Collective::AllToAll;
  if (has("broadcast")) return Collective::Broadcast;
  return std::nullopt;
}

struct Launch {
  std::string thread;
  double time_s = 0;
};

struct TimedScope {
  std::string thread;
  double start_s = 0;
  double end_s = 0;
  std::size_t scope = 0;  // of KinetoTrace::scopes
};

class KinetoReader {
 public:
  explicit KinetoReader(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }

  void add(const Json& event) {
    const TraceEvent named{event, fmt::format("{}: traceEvents[{}]", file_, number_++)};
    if (!event.is_object())
      throw ConfigError(fmt::format("{}: {}, expected an object", named.place, quoted(event)));
    if (text_at(event, "ph") != "X") return;
    const std::string category = lower(text_at(event, "cat"));
    const Json* args = member(event, "args");
    static const Json kNothing = Json::object();
    if (args == nullptr || !args->is_object()) args = &kNothing;
    if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" ||
        category == "memcpy" || category == "memset")
      add_kernel(named, *args);
    else if (category == "cuda_runtime" || category == "cuda_driver" || category == "runtime")
      add_launch(named, *args);
    else if (category == "cpu_op" || category == "operator" || category == "user_annotation")
      add_scope(named, *args, category == "user_annotation");
  }

  void add_header(const Json& root) {
    const Json* info = member(root, "distributedInfo");
    if (info == nullptr || !info->is_object()) return;
    const auto rank = whole_number(*info, "rank"), world = whole_number(*info, "world_size");
    if (rank && *rank >= 0 && *rank < limits::kRanks) trace_.rank = static_cast<int>(*rank);
    if (world && *world > 0 && *world <= limits::kRanks)
      trace_.world_size = static_cast<int>(*world);
  }

  KinetoTrace take() {
    if (trace_.kernels.empty())
      throw ConfigError(fmt::format(
          "{}: traceEvents: none of {} events is a kernel (\"cat\": \"kernel\"); profile with "
          "ProfilerActivity.CUDA",
          file_, number_));
    find_launches();
    std::ranges::sort(trace_.steps, {}, &ProfiledStep::start_s);
    return std::move(trace_);
  }

 private:
  static std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  }

  /// Since the first event: clocks that count from 1970 leave a double too few digits.
  double start_of(const TraceEvent& event) {
    const double time = seconds_at(event, "ts");
    if (!first_s_) first_s_ = time;
    return time - *first_s_;
  }

  void add_kernel(const TraceEvent& event, const Json& args) {
    KinetoKernel kernel{.name = printable_line(text_at(event.json, "name")), .scopes = {}};
    kernel.kind = kind_of_kernel(kernel.name);
    kernel.start_s = kernel.launched_s = start_of(event);
    kernel.end_s = kernel.start_s + seconds_at(event, "dur");
    kernel.stream = whole_number(args, "stream").value_or(0);
    const bool communicates =
        kernel.kind == KernelKind::Collective || kernel.kind == KernelKind::Message;
    if (communicates) add_message(kernel, args);
    correlations_.push_back(whole_number(args, "correlation"));
    trace_.kernels.push_back(std::move(kernel));
  }

  static void add_message(KinetoKernel& kernel, const Json& args) {
    const std::string called = text_at(args, "Collective name");
    const auto size = whole_number(args, "Group size");
    if (size && *size > 0 && *size <= limits::kRanks) kernel.group_size = static_cast<int>(*size);
    if (letters_of(called) == "send" || letters_of(called) == "recv")
      kernel.sends = letters_of(called) == "send";
    if (kernel.kind == KernelKind::Collective) {
      kernel.collective = collective_named(called.empty() ? kernel.name : called);
      if (!kernel.collective && letters_of(called).find("send") != std::string::npos)
        kernel.kind = KernelKind::Message;
    }
    // NCCL runs an all-to-all as sends and receives.
    if (kernel.kind == KernelKind::Message && collective_named(called)) {
      kernel.kind = KernelKind::Collective;
      kernel.collective = collective_named(called);
    }
    const auto in = whole_number(args, "In msg nelems"), out = whole_number(args, "Out msg nelems");
    const std::int64_t bytes = bytes_of_type(text_at(args, "dtype"));
    const std::int64_t most = std::int64_t{1} << 55;
    if (in && out && *in >= 0 && *out >= 0 && *in < most && *out < most)
      kernel.message_bytes =
          bytes * (kernel.kind == KernelKind::Message ? std::max(*in, *out) : *in);
  }

  void add_launch(const TraceEvent& event, const Json& args) {
    if (const auto correlation = whole_number(args, "correlation"))
      launches_.try_emplace(*correlation, Launch{thread_of(event.json), start_of(event)});
  }

  void add_scope(const TraceEvent& event, const Json& args, bool annotation) {
    constexpr std::string_view kStep = "ProfilerStep#";
    const double start = start_of(event), end = start + seconds_at(event, "dur");
    std::string name = text_at(event.json, "name");
    if (name.starts_with(kStep)) {
      const auto number = parse_number(std::string_view(name).substr(kStep.size()), 0, 1e15);
      if (!number)
        throw ConfigError(fmt::format("{}: name: '{}', expected ProfilerStep# and a number",
                                      event.place, short_line(name)));
      trace_.steps.push_back({static_cast<std::int64_t>(*number), start, end});
      return;
    }
    timed_scopes_.push_back({thread_of(event.json), start, end, trace_.scopes.size()});
    trace_.scopes.push_back({std::move(name), annotation, shapes_of(args)});
  }

  /// Which scopes are open when a kernel is launched: those of a thread lie inside each other.
  void find_launches() {
    std::map<std::string, std::vector<std::size_t>> by_thread;
    for (std::size_t i = 0; i < trace_.kernels.size(); ++i) {
      if (!correlations_[i]) continue;
      const auto launch = launches_.find(*correlations_[i]);
      if (launch == launches_.end()) continue;
      trace_.kernels[i].launched_s = launch->second.time_s;
      by_thread[launch->second.thread].push_back(i);
    }
    std::ranges::stable_sort(timed_scopes_, [](const TimedScope& a, const TimedScope& b) {
      return std::tie(a.thread, a.start_s, b.end_s) < std::tie(b.thread, b.start_s, a.end_s);
    });
    for (auto scope = timed_scopes_.begin(); scope != timed_scopes_.end();) {
      const auto end = std::ranges::find_if(
          scope, timed_scopes_.end(),
          [&](const TimedScope& other) { return other.thread != scope->thread; });
      if (const auto kernels = by_thread.find(scope->thread); kernels != by_thread.end())
        open_scopes({scope, end}, kernels->second);
      scope = end;
    }
    std::ranges::stable_sort(trace_.kernels, {}, &KinetoKernel::launched_s);
  }

  void open_scopes(std::span<const TimedScope> scopes, std::vector<std::size_t>& kernels) {
    std::ranges::sort(kernels, {}, [&](std::size_t i) { return trace_.kernels[i].launched_s; });
    std::vector<const TimedScope*> open;
    std::size_t next = 0;
    for (const std::size_t i : kernels) {
      const double time = trace_.kernels[i].launched_s;
      while (next < scopes.size() && scopes[next].start_s <= time) {
        while (!open.empty() && open.back()->end_s <= scopes[next].start_s) open.pop_back();
        open.push_back(&scopes[next++]);
      }
      while (!open.empty() && open.back()->end_s < time) open.pop_back();
      constexpr std::size_t kDeepest = 64;
      for (const TimedScope* scope : open)
        if (scope->end_s >= time && trace_.kernels[i].scopes.size() < kDeepest)
          trace_.kernels[i].scopes.push_back(scope->scope);
    }
  }

  std::string file_;
  std::size_t number_ = 0;
  std::optional<double> first_s_;
  KinetoTrace trace_;
  std::vector<std::optional<std::int64_t>> correlations_;  // of the kernels
  std::map<std::int64_t, Launch> launches_;
  std::vector<TimedScope> timed_scopes_;
};

/// Reads events one by one, so that a trace of a gigabyte is never held as JSON.
/// @throws Json::exception
Json read_events(std::string_view text, KinetoReader& reader) {
  bool in_events = false;
  return Json::parse(text, [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 64) throw ConfigError(reader.file() + ": nested deeper than 64 levels");
    if (depth == 1 && event == Json::parse_event_t::key)
      in_events = parsed.get<std::string>() == "traceEvents";
    const bool whole = event == Json::parse_event_t::object_end ||
                       event == Json::parse_event_t::array_end ||
                       event == Json::parse_event_t::value;
    if (!in_events || depth != 2 || !whole) return true;
    reader.add(parsed);
    return false;
  });
}

}  // namespace

std::vector<ProfiledStep> whole_steps(const KinetoTrace& trace) {
  if (!trace.steps.empty()) return trace.steps;
  ProfiledStep all{.number = 0,
                   .start_s = trace.kernels.front().launched_s,
                   .end_s = trace.kernels.front().end_s};
  for (const KinetoKernel& kernel : trace.kernels) {
    all.start_s = std::min(all.start_s, kernel.launched_s);
    all.end_s = std::max(all.end_s, kernel.end_s);
  }
  return {all};
}

KinetoTrace parse_kineto_trace(std::string_view text, const std::string& file) {
  KinetoReader reader(file);
  Json root;
  try {
    root = read_events(text, reader);
  } catch (const Json::exception&) {
    parse_json(text, file);  // says where
    throw ConfigError(fmt::format("{}: not valid JSON", file));
  }
  if (!root.is_object() || member(root, "traceEvents") == nullptr)
    throw ConfigError(fmt::format("{}: expected an object with 'traceEvents'", file));
  reader.add_header(root);
  return reader.take();
}

}  // namespace meshplan::planner

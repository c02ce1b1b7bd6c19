// The format: pytorch/kineto, libkineto/src/output_json.cpp; sizes of NCCL's kernels:
// ParamCommsUtils of PyTorch ("In msg nelems", "Group size", ...).
#include "planner/runs/kineto_trace.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <span>
#include <tuple>

#include "core/json_list.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "core/units.hpp"
#include "runs/kineto_texts.hpp"

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
KinetoTexts::Shapes shapes_of(const Json& args) {
  KinetoTexts::Shapes shapes;
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
  std::int64_t correlation = 0;  // with its kernel
  std::string_view thread;
  double time_s = 0;
};

struct TimedScope {
  std::string_view thread;
  double start_s = 0;
  double end_s = 0;
  std::uint32_t scope = 0;  // of KinetoTrace::scopes
};

/// Of an event and of the file's head what is read, all else is skipped.
std::vector<KeptMember> kept_members() {
  return {{"traceEvents",
           {{"ph"},
            {"cat"},
            {"name"},
            {"pid"},
            {"tid"},
            {"ts"},
            {"dur"},
            {"args",
             {{"stream"},
              {"correlation"},
              {"Collective name"},
              {"Group size"},
              {"In msg nelems"},
              {"Out msg nelems"},
              {"dtype"},
              {"Input Dims"},
              {"Input dims"}}}}},
          {"distributedInfo", {{"rank"}, {"world_size"}}}};
}

class KinetoReader {
 public:
  explicit KinetoReader(std::string file)
      : file_(std::move(file)), texts_(std::make_shared<KinetoTexts>(file_)) {}

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
    trace_.texts = std::move(texts_);
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

  /// The most that is kept of each kind bounds the memory of a trace of any length.
  void require_room(const TraceEvent& event, std::size_t kept, std::size_t most,
                    std::string_view kind) const {
    if (kept >= most)
      throw ConfigError(fmt::format("{}: more than {} {}, the limit; profile fewer steps",
                                    event.place, most, kind));
  }

  void add_kernel(const TraceEvent& event, const Json& args) {
    require_room(event, trace_.kernels.size(), kMostKernels, "kernels");
    KinetoKernel kernel{.name = texts_->keep(printable_line(text_at(event.json, "name"))),
                        .scopes = {}};
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
    const auto correlation = whole_number(args, "correlation");
    if (!correlation) return;
    require_room(event, launches_.size(), kMostLaunches, "launches");
    launches_.push_back({*correlation, texts_->keep(thread_of(event.json)), start_of(event)});
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
      require_room(event, trace_.steps.size(), kMostProfiledSteps, "steps");
      trace_.steps.push_back({static_cast<std::int64_t>(*number), start, end});
      return;
    }
    require_room(event, trace_.scopes.size(), kMostScopes, "operators and annotations");
    timed_scopes_.push_back({texts_->keep(thread_of(event.json)), start, end,
                             static_cast<std::uint32_t>(trace_.scopes.size())});
    trace_.scopes.push_back({texts_->keep(name), annotation, texts_->keep(shapes_of(args))});
  }

  /// Which scopes are open when a kernel is launched: those of a thread lie inside each other.
  void find_launches() {
    std::map<std::string_view, std::vector<std::size_t>> by_thread;
    std::ranges::stable_sort(launches_, {},
                             &Launch::correlation);  // the first of equal ones counts
    for (std::size_t i = 0; i < trace_.kernels.size(); ++i) {
      if (!correlations_[i]) continue;
      const auto launch =
          std::ranges::lower_bound(launches_, *correlations_[i], {}, &Launch::correlation);
      if (launch == launches_.end() || launch->correlation != *correlations_[i]) continue;
      trace_.kernels[i].launched_s = launch->time_s;
      by_thread[launch->thread].push_back(i);
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
      while (next < scopes.size() && scopes[next].start_s <= time) push_open(open, scopes[next++]);
      std::erase_if(open, [&](const TimedScope* scope) { return scope->end_s < time; });
      constexpr std::size_t kDeepest = 64;
      for (std::size_t k = 0; k < std::min(open.size(), kDeepest); ++k)
        trace_.kernels[i].scopes.push_back(open[k]->scope);
    }
  }

  /// Leaves out what has ended. Scopes of a thread should lie in one another; those of a damaged
  /// trace may not.
  void push_open(std::vector<const TimedScope*>& open, const TimedScope& scope) const {
    constexpr std::size_t kMostOpen = 4096;
    while (!open.empty() && open.back()->end_s <= scope.start_s) open.pop_back();
    if (open.size() == kMostOpen)
      std::erase_if(open, [&](const TimedScope* other) { return other->end_s < scope.start_s; });
    if (open.size() == kMostOpen)
      throw ConfigError(fmt::format(
          "{}: traceEvents: more than {} operators and annotations of a thread at once, the limit",
          file_, kMostOpen));
    open.push_back(&scope);
  }

  std::string file_;
  std::size_t number_ = 0;
  std::optional<double> first_s_;
  KinetoTrace trace_;
  std::shared_ptr<KinetoTexts> texts_;
  std::vector<std::optional<std::int64_t>> correlations_;  // of the kernels
  std::vector<Launch> launches_;
  std::vector<TimedScope> timed_scopes_;
};

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

KinetoTrace parse_kineto_trace(const TextBlocks& text, const std::string& file) {
  KinetoReader reader(file);
  const Json root =
      read_json_list(text, file,
                     {.key = "traceEvents",
                      .kept = kept_members(),
                      .keys_are_unique = false,
                      .use = [&](const Json& event, std::size_t /*index*/) { reader.add(event); }});
  if (!root.is_object() || member(root, "traceEvents") == nullptr)
    throw ConfigError(fmt::format("{}: expected an object with 'traceEvents'", file));
  reader.add_header(root);
  return reader.take();
}

KinetoTrace parse_kineto_trace(std::string_view text, const std::string& file) {
  return parse_kineto_trace(one_block(text), file);
}

}  // namespace meshplan::planner

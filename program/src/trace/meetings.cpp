#include "program/trace/meetings.hpp"

#include <map>
#include <tuple>

#include "program/plan/mesh.hpp"

namespace meshplan::program {
namespace {

/// Step, two ranks, lane, operation or running number.
using MeetingKey = std::tuple<int, int, int, int, std::uint64_t>;

std::optional<Group> group_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Group::ExpertZeroReplicas); ++i)
    if (name_of(static_cast<Group>(i)) == name) return static_cast<Group>(i);
  return std::nullopt;
}

/// What the members of a communication have in common, and nobody else has.
class MeetingKeys {
 public:
  explicit MeetingKeys(const Trace& trace) : mesh_(mesh_of(trace.plan)) {}

  MeetingKey of(const Span& span) {
    if (!span.peer)
      return {span.step, first_member(span), -1, static_cast<int>(span.lane), span.id};
    const int from = sends(span) ? span.rank : *span.peer;
    const int to = sends(span) ? *span.peer : span.rank;
    const int kind = carries_activations(span.lane) ? 0 : 1;
    // The k-th of these messages that is sent is the k-th that is received.
    const int number = messages_[{span.step, from, to, kind, sends(span)}]++;
    return {span.step, from, to, kind, static_cast<std::uint64_t>(number)};
  }

 private:
  /// The least rank of the group that the span's rank is in; itself in a group that no mesh has.
  int first_member(const Span& span) {
    const auto [found, is_new] = first_members_.try_emplace({span.group, span.rank}, span.rank);
    if (const auto group = group_named(span.group); is_new && group)
      found->second = mesh_.group(*group, span.rank).front();
    return found->second;
  }

  Mesh mesh_;
  std::map<std::pair<std::string, int>, int> first_members_;
  std::map<std::tuple<int, int, int, int, bool>, int> messages_;
};

}  // namespace

bool communicates(const Span& span) {
  return !span.group.empty();
}

bool sends(const Span& span) {
  return span.name.find("send") != std::string::npos;
}

Meetings::Meetings(const Trace& trace) : meeting_of_(trace.spans.size(), kNone) {
  MeetingKeys keys(trace);
  std::map<MeetingKey, std::size_t> numbers;
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    if (!communicates(span)) continue;
    const auto [found, is_new] = numbers.try_emplace(keys.of(span), meetings_.size());
    if (is_new)
      meetings_.push_back({.spans = {}, .all_arrived_s = span.start_s, .last_rank = span.rank});
    Meeting& meeting = meetings_[found->second];
    meeting.spans.push_back(i);
    meeting_of_[i] = found->second;
    if (span.start_s <= meeting.all_arrived_s) continue;
    meeting.all_arrived_s = span.start_s;
    meeting.last_rank = span.rank;
  }
}

}  // namespace meshplan::program

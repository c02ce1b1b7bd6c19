#include "program/calibration.hpp"

#include "comm_names.hpp"
#include "core/json_fields.hpp"

namespace meshplan {

namespace program {

template <class Visitor>
void fields(Visitor& v, OperatorSample& s) {
  v.required("signature", s.signature, "kind, phase, dtype and local shape");
  v.required("seconds", s.seconds, "median, alone", at_least(0));
  v.optional("seconds_busy", s.seconds_busy, "median while every core ran the same", at_least(0));
  v.optional("spread", s.spread, "(p90 - p10) / median", at_least(0));
  v.optional("flops", s.flops, "executed", at_least(0));
  v.optional("bytes", s.bytes, "fewest that must move", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, CommSample& s) {
  v.required("op", s.op, "operation");
  v.required("group_size", s.group_size, "ranks that took part", at_least(1));
  v.required("ranks_on_host", s.ranks_on_host, "ranks of the job on the busiest host", at_least(1));
  v.required("cores_on_host", s.cores_on_host, "cores that these may run on", at_least(1));
  v.required("bytes", s.bytes, "that one rank passes in", at_least(0));
  v.required("algorithm", s.algorithm, "that ran");
  v.optional("repeats", s.repeats, "timed", at_least(0));
  v.required("seconds", s.seconds, "median, of the slowest rank", at_least(0));
  v.optional("p10_s", s.p10_s, "10th percentile");
  v.optional("p90_s", s.p90_s, "90th percentile");
}

template <class Visitor>
void fields(Visitor& v, LinkSample& s) {
  v.required("from", s.from, "world rank", at_least(0));
  v.required("to", s.to, "world rank", at_least(0));
  v.required("same_host", s.same_host, "whether both run on one machine");
  v.required("bytes", s.bytes, "of the message", at_least(0));
  v.optional("repeats", s.repeats, "timed", at_least(0));
  v.required("seconds", s.seconds, "median, one way", at_least(0));
  v.optional("p10_s", s.p10_s, "10th percentile");
  v.optional("p90_s", s.p90_s, "90th percentile");
}

template <class Visitor>
void fields(Visitor& v, CalibrationSamples& s) {
  v.required("schema_version", s.schema_version, "version of this format", between(1, 1));
  v.required("hostname", s.hostname, "of rank 0's machine");
  v.optional("processor", s.processor, "its model");
  v.required("ranks", s.ranks, "of the job", at_least(1));
  v.required("cores", s.cores, "that the ranks of the busiest host may run on", at_least(1));
  v.optional("num_machines", s.num_machines, "of the job", at_least(1));
  v.optional("memory_bytes", s.memory_bytes, "installed on one host", at_least(0));
  v.optional("process_bytes", s.process_bytes, "resident without any buffer of a program",
             at_least(0));
  v.optional("memory_rate", s.memory_rate, "bytes/s of one rank's copy, read plus written",
             at_least(0));
  v.optional("host_memory_rate", s.host_memory_rate, "of all cores copying at once", at_least(0));
  v.optional("dtypes", s.dtypes, "that operators were measured in");
  v.optional("operators", s.operators, "timed operators");
  v.optional("communication", s.communication, "timed collectives");
  v.optional("links", s.links, "timed messages between pairs");
}

CalibrationSamples parse_samples(std::string_view text, const std::string& file) {
  return read_json<CalibrationSamples>(text, file);
}

std::string to_json(const CalibrationSamples& samples) {
  return write_json(samples).dump(1) + "\n";
}

}  // namespace program
}  // namespace meshplan

// The answer of `meshplan certify`: which twins of a plan ran, what was compared, and the verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/certificate/agreement.hpp"
#include "program/certificate/proof.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// One twin beside one rank.
struct TwinResult {
  Plan plan;
  std::vector<std::string> techniques;
  std::string device;               // that the twin's rank 0 computed on; absent in older files
  std::string reference;            // that the one rank computed on
  std::string reference_precision;  // and in
  int ranks = 0;
  int steps = 0;
  /// Of the initial weights and the tokens. A router that chooses is discontinuous: rounding may
  /// decide a near tie otherwise. So where a first seed differs, a second one decides.
  std::vector<std::uint64_t> seeds;
  Tolerance tolerance;
  std::vector<Compared> compared;  // under the last seed
  bool agrees() const;
};

struct Certificate {
  int schema_version = 3;      // 1 had no messages and copies, 2 no devices
  std::string version;         // of meshplan
  std::string plan_hash;       // of the plan as meshplan writes it
  std::string plan_precision;  // that it trains in
  std::string compared_in;     // precision of the twins
  std::vector<TwinResult> twins;
  std::vector<std::string> uncovered;    // techniques and pairs of the plan that no twin has
  std::string failure;                   // why a twin did not run to its end; empty = all did
  std::optional<ProgramProof> programs;  // of the plan itself; absent in older files
  bool agrees() const;
};

/// The figure that lies furthest into its tolerance; null without any.
const Compared* furthest(const std::vector<Compared>& compared);

/// The gradient that lies furthest into its tolerance, and its twin; null without any.
struct FurthestGradient {
  std::size_t twin = 0;
  const Compared* compared = nullptr;
};
FurthestGradient furthest_gradient(const std::vector<TwinResult>& twins);

/// Did the twins run on another device than what they are compared with?
bool compares_devices(const std::vector<TwinResult>& twins);

/// What these twins cannot show, whatever their figures say: a sentence each.
std::vector<std::string> not_shown(const std::vector<TwinResult>& twins);

/// The hash by which a certificate names a plan.
std::string plan_hash(const Plan& plan);

/// What the ranks hand to the process that started them. @throws ConfigError
std::string to_json(const std::vector<TwinResult>& results);
std::vector<TwinResult> parse_twin_results(std::string_view text, const std::string& file);

std::string to_json(const Certificate& certificate);
/// @throws ConfigError
Certificate parse_certificate(std::string_view text, const std::string& file);

}  // namespace meshplan::program
